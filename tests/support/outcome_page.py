"""A page of outcomes: how each client program behaves with our broker and with the real one.

The page is Markdown: a table of verdicts, then a section for each step with a line for each client.
A run compares its results with the page, or writes the page.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

PAGE = Path(__file__).resolve().parent.parent / "interop" / "outcomes" / "clients.md"
WRITE_VARIABLE = "TREBUCHET_WRITE_OUTCOMES"
CLIENTS = ("Java 4.9.7", "Java 5.3.3", "Go")
OURS, THEIRS = "ours", "theirs"

Facts = dict[tuple[str, str, str], str]
"""(step, client, broker) -> observed outcome."""


@dataclass(frozen=True, slots=True)
class Step:
    """One behaviour.

    `clients` support the step, and `without` says why the others don't. `differs` maps clients to
    the reason why our broker deliberately behaves differently.
    """

    name: str
    clients: tuple[str, ...] = CLIENTS
    without: str = ""
    differs: dict[str, str] = field(default_factory=dict)


def read(page: Path = PAGE) -> Facts:
    """Return the outcomes on a page, or an empty dict without a page."""
    facts: Facts = {}
    step = ""
    for line in page.read_text(encoding="utf-8").splitlines() if page.exists() else ():
        if line.startswith("## "):
            step = line.removeprefix("## ")
        elif found := _FACT.fullmatch(line):
            client, brokers, text = found.groups()
            for broker in (OURS, THEIRS) if brokers == "both" else (brokers,):
                facts[step, client, broker] = text
    return facts


_FACT = re.compile(r"- (.+), (both|ours|theirs): `(.*)`")


def page_of(steps: list[Step], facts: Facts) -> str:
    """Return the text of the page."""
    parts = [
        "# The client programs: our broker and the real 4.9.7\n",
        "Written by the tests of `tests/interop` from runs of the same programs against both "
        f"({WRITE_VARIABLE}=1 writes it). The steps, and the reason of each difference, are in "
        "`tests/interop/client_steps.py`.\n",
        "| step | " + " | ".join(CLIENTS) + " |\n| --- " + "| --- " * len(CLIENTS) + "|",
    ]
    for step in steps:
        verdicts = [verdict(step, client, facts) for client in CLIENTS]
        parts.append("| " + " | ".join([step.name, *verdicts]) + " |")
    for step in steps:
        parts.append(f"\n## {step.name}\n")
        for client in step.clients:
            ours, theirs = (facts.get((step.name, client, each), "") for each in (OURS, THEIRS))
            if ours == theirs:
                parts.append(f"- {client}, both: `{ours}`")
            else:
                parts.append(f"- {client}, ours: `{ours}`")
                parts.append(f"- {client}, theirs: `{theirs}`")
    return "\n".join(parts) + "\n"


def verdict(step: Step, client: str, facts: Facts) -> str:
    """Return "same", "differs" with the reason, or why the client can't do the step."""
    if client not in step.clients:
        return f"cannot: {step.without}"
    ours, theirs = (facts.get((step.name, client, each)) for each in (OURS, THEIRS))
    if ours is None or theirs is None:
        return "not run"
    return "same" if ours == theirs else f"differs: {step.differs.get(client, 'nobody knows why')}"


def complaints(steps: list[Step], client: str, broker: str, seen: dict[str, str]) -> dict[str, str]:
    """Write a run's results into the page, or return the differing steps with the differences."""
    known = {step.name: step for step in steps}
    found = {
        name: f"{client} has a step that tests/interop/client_steps.py does not know: {name}"
        for name in seen
        if name not in known or client not in known[name].clients
    }
    if os.environ.get(WRITE_VARIABLE):
        facts = read() | {(name, client, broker): text for name, text in seen.items()}
        PAGE.write_text(page_of(steps, facts), encoding="utf-8")
        return found
    facts = read()
    for name, text in seen.items():
        expected = facts.get((name, client, broker))
        if expected != text and name not in found:
            found[name] = (
                f"{name}: {client} against {broker} saw\n    {text}\n"
                f"  and the table of outcomes has\n    {expected}\n"
                f"  If that is right, {WRITE_VARIABLE}=1 writes the table anew."
            )
    return found


def require(steps: list[Step], step: str, client: str, broker: str, text: str) -> None:
    """Fail unless a step ended as the page says; see `complaints`."""
    found = complaints(steps, client, broker, {step: text})
    assert not found, found[step]


class SeenOnceWarning(UserWarning):
    """A difference that didn't show up again."""


Differences = dict[tuple[str, str], str]
"""(broker, step) -> the difference."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """Confirmed differences, and those seen only once."""

    wrong: list[str]
    once: list[str]


def run_and_confirm(take: Callable[[list[str]], Differences], brokers: list[str]) -> Verdict:
    """Run the steps against `brokers`; repeat any that differ.

    The machine may stall for seconds, which delays the real broker's steps as much as ours, so a
    difference counts only if it shows up twice. `take` gets the kinds of brokers to restart.
    """
    first = take(brokers)
    if not first:
        return Verdict([], [])
    again = take([kind for kind in brokers if any(broker == kind for broker, _ in first)])
    return Verdict(
        [text for key, text in again.items() if key in first],
        [text for key, text in {**first, **again}.items() if not (key in first and key in again)],
    )
