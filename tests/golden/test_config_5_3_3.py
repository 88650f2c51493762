"""Our 5.x keys compared with a real broker 5.3.3's."""

from __future__ import annotations

from pathlib import Path

from broker_core.config.keys_of_5 import KEYS_OF_5

HERE = Path(__file__).parent / "config"


def test_keys_of_5_are_those_missing_in_4_9_7() -> None:
    of_5 = {line.split()[1] for line in (HERE / "5.3.3.txt").read_text().splitlines()}
    lines = (HERE / "4.9.7.txt").read_text().splitlines()
    of_4 = {line.removeprefix("important ").partition("=")[0] for line in lines}

    assert of_5 - of_4 == KEYS_OF_5
