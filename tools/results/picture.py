"""Draw a comparison: CPU time per message as a ratio to RocketMQ 4.9.7's."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tools.results.documents import Ratio
from tools.results.tables import BASE, BROKERS, OURS, PYTHON

if TYPE_CHECKING:
    from pathlib import Path

    from tools.results.documents import CellResult, Comparison

PLACE = "images/performance.svg"
COLOURS = {
    BASE: "#b4652f",
    "5.3.3": "#d9a47c",
    "kafka": "#4a6fa5",
    "kafka batched": "#a9bcd8",
    PYTHON: "#8fbfa8",
    OURS: "#2f7d5b",
}
BAR, GAP, LEFT, SCALE = 11, 14, 210, 420
MOST = 1.4
WIDTH = LEFT + int(MOST * SCALE) + 50


def write(folder: Path, found: Comparison) -> None:
    """Draw a comparison into a folder of documents."""
    path = folder / PLACE
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(drawn(found))


def drawn(found: Comparison) -> str:
    """Return an SVG with a group of bars for each cell."""
    took_part = {name for cell in found.cells for name in cell.brokers}
    names = [name for name in COLOURS if name in took_part]
    parts: list[str] = []
    x, y = 8, 34
    for name in names:
        parts.append(f'<rect x="{x}" y="8" width="10" height="10" fill="{COLOURS[name]}"/>')
        parts.append(f'<text x="{x + 14}" y="17">{BROKERS[name]}</text>')
        x += 26 + 6 * len(BROKERS[name])
    for cell in found.cells:
        bars = _bars(cell, names)
        if not bars:
            continue
        middle = y + BAR * len(bars) / 2 + 4
        parts.append(f'<text x="{LEFT - 8}" y="{middle:g}" text-anchor="end">{cell.name}</text>')
        for name, part in bars:
            width = min(part, MOST) * SCALE
            size = f'width="{width:.1f}" height="{BAR - 1}"'
            parts.append(f'<rect x="{LEFT}" y="{y}" {size} fill="{COLOURS[name]}"/>')
            parts.append(f'<text x="{LEFT + width + 4:.1f}" y="{y + 9}">{part:.2f}</text>')
            y += BAR
        y += GAP
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {y}" '
        f'font-family="sans-serif" font-size="11" role="img" '
        f'aria-label="Processor time a message, as parts of {BROKERS[BASE]}\'s">'
        f'<rect width="100%" height="100%" fill="#fff"/>{"".join(parts)}</svg>\n'
    )


def _bars(cell: CellResult, names: list[str]) -> list[tuple[str, float]]:
    """Return each broker's cost as a ratio to the base's, empty if the base has no figure."""
    if BASE not in cell.brokers:
        return []
    ratios = cell.ratios | {BASE: Ratio(1.0)}
    return [(name, ratios[name].cost) for name in names if name in ratios]
