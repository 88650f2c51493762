"""Options that several commands of `python -m tools.faults` share."""

from __future__ import annotations

from argparse import ArgumentTypeError

from tools.faults import tested_brokers

ALL, RAW = "all", "raw"
BROKER: tuple[str, dict[str, object]] = (
    "--broker",
    {
        "choices": tested_brokers.KINDS,
        "default": tested_brokers.OURS,
        "help": "ours (default), or a version of RocketMQ, whose findings are only counted",
    },
)

CLIENTS: tuple[str, dict[str, object]] = (
    "--clients",
    {
        "choices": (ALL, RAW),
        "default": ALL,
        "help": "raw ones with those of RocketMQ's own, in Java and Go (all, default), or alone",
    },
)


def number(default: int, words: str) -> dict[str, object]:
    return {"type": int, "default": default, "help": f"{words} (default {default})"}


def kinds(all_kinds: tuple[str, ...]) -> dict[str, object]:
    return {"action": "append", "choices": all_kinds, "help": "only this one; can be repeated"}


def seeds(text: str) -> range:
    first, _, last = text.partition("-")
    try:
        found = range(int(first), int(last) + 1)
    except ValueError:
        raise ArgumentTypeError(f"{text!r} is not of the form 0-999") from None
    if not found:
        raise ArgumentTypeError(f"{text!r} contains no seeds")
    return found
