"""Request modes: limits for their number and name length."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from broker_core.config.limits import LIMITS
from broker_core.errors import RequestRefusedError
from broker_core.metadata.document import Document
from broker_core.metadata.request_modes import POP, RequestMode, RequestModes
from tests.support.faulty_storage import FaultyStorage

PATH = Path("/store/config/messageRequestMode.json")
FEW = dataclasses.replace(LIMITS, consumer_group_nums_max=2)


def mode(group: str, topic: str = "T") -> RequestMode:
    return RequestMode(consumer_group=group, mode=POP, topic=topic)


def test_a_restart_reads_the_modes() -> None:
    storage = FaultyStorage()
    modes = RequestModes(Document(storage, PATH), FEW)
    modes.put(mode("g"))
    modes.writer.write_now()

    again = RequestModes(Document(storage, PATH), FEW)
    again.load()

    assert again.find("T", "g") == mode("g")


def test_modes_are_limited_in_number_and_existing_ones_may_change() -> None:
    modes = RequestModes(Document(FaultyStorage(), PATH), FEW)
    for group in ("g", "h"):
        modes.put(mode(group))

    modes.put(RequestMode(consumer_group="g", topic="T"))
    for _ in range(2):
        with pytest.raises(RequestRefusedError, match="consumerGroupNumsMax=2"):
            modes.put(mode("i", "another topic"))
    assert list(modes.table) == ["T"]


@pytest.mark.parametrize("names", [("g" * 256, "T"), ("g", "T" * 256)])
def test_a_long_name_is_rejected(names: tuple[str, str]) -> None:
    modes = RequestModes(Document(FaultyStorage(), PATH), FEW)

    with pytest.raises(RequestRefusedError, match="255 characters"):
        modes.put(mode(*names))
    assert modes.table == {}
