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
        "help": "broker to test: ours (default), or RocketMQ, whose findings are only counted",
    },
)

CLIENTS: tuple[str, dict[str, object]] = (
    "--clients",
    {
        "choices": (ALL, RAW),
        "default": ALL,
        "help": "all (default): raw clients and RocketMQ's Java and Go clients; raw: only raw ones",
    },
)


def number(default: int, words: str) -> dict[str, object]:
    return {"type": int, "default": default, "help": f"{words} (default {default})"}


def kinds(all_kinds: tuple[str, ...]) -> dict[str, object]:
    return {
        "action": "append",
        "choices": all_kinds,
        "help": "run only this kind; repeat the option for several",
    }


def seeds(text: str) -> range:
    first, _, last = text.partition("-")
    try:
        found = range(int(first), int(last) + 1)
    except ValueError:
        raise ArgumentTypeError(f"{text!r} isn't a range such as 0-999") from None
    if not found:
        raise ArgumentTypeError(f"{text!r} contains no seeds")
    return found
