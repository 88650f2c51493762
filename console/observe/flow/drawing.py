"""The shape of the ribbons: areas between two columns of rows, as wide as their rates."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

    from console.observe.flow.reading import Node, Ribbon

ROW = 44
"""Height of a node's row in px, as in the style sheet."""
WIDTH = 100
BAND_MAX = 30.0
BAND_MIN = 1.5


class DrawnRibbon(NamedTuple):
    """A ribbon with the path of its area."""

    ribbon: Ribbon
    path: str


def draw(
    ribbons: Sequence[Ribbon], sources: Sequence[Node], targets: Sequence[Node]
) -> list[DrawnRibbon]:
    """Return the paths; at each node, the ribbons are side by side around the row's middle."""
    left = {node.name: index for index, node in enumerate(sources)}
    right = {node.name: index for index, node in enumerate(targets)}
    shown = [each for each in ribbons if each.source in left and each.target in right]
    most = max(
        (
            sum(each.rate for each in shown if getattr(each, side) == name)
            for side in ("source", "target")
            for name in {getattr(each, side) for each in shown}
        ),
        default=0.0,
    )
    scale = BAND_MAX / most if most else 0.0
    widths = {each: max(BAND_MIN, each.rate * scale) for each in shown}
    tops: dict[tuple[str, str], float] = {}
    for side, rows in (("source", left), ("target", right)):
        for name, index in rows.items():
            here = [each for each in shown if getattr(each, side) == name]
            tops[side, name] = index * ROW + (ROW - sum(widths[each] for each in here)) / 2
    made = []
    for each in sorted(shown, key=lambda each: (left[each.source], right[each.target])):
        width = widths[each]
        y0, y1 = tops["source", each.source], tops["target", each.target]
        tops["source", each.source] += width
        tops["target", each.target] += width
        made.append(DrawnRibbon(each, area(y0, y1, width)))
    return made


def area(y0: float, y1: float, width: float) -> str:
    """Return the SVG path of a band from the left edge at y0 to the right edge at y1."""
    half = WIDTH // 2
    return (
        f"M0 {y0:.1f}C{half} {y0:.1f} {half} {y1:.1f} {WIDTH} {y1:.1f}"
        f"V{y1 + width:.1f}C{half} {y1 + width:.1f} {half} {y0 + width:.1f} 0 {y0 + width:.1f}Z"
    )
