from __future__ import annotations

from pathlib import Path

import pytest

from broker_core.delay.delay_offsets import DelayOffsets
from broker_core.errors import StoreError
from broker_core.metadata.document import Document
from tests.support.faulty_storage import FaultyStorage

PATH = Path("/store/config/delayOffset.json")


def offsets_of(storage: FaultyStorage) -> DelayOffsets:
    offsets = DelayOffsets(Document(storage, PATH))
    offsets.load()
    return offsets


async def test_the_file_has_the_originals_form() -> None:
    storage = FaultyStorage()
    offsets = offsets_of(storage)
    for level, offset in ((3, 50), (1, 48), (2, 48)):
        offsets.move(level, offset)

    await offsets.write(offsets.writing())

    assert storage.read(PATH) == b'{\n\t"offsetTable":{1:48,2:48,3:50\n\t}\n}'
    assert offsets_of(storage).table == {1: 48, 2: 48, 3: 50}


def test_without_a_file_every_level_starts_at_its_beginning() -> None:
    assert offsets_of(FaultyStorage()).get(5) == 0


def test_a_non_numeric_offset_keeps_the_broker_from_starting() -> None:
    storage = FaultyStorage()
    storage.write_atomically(PATH, b'{"offsetTable":{"1":"x"}}')

    with pytest.raises(StoreError, match=r"delayOffset\.json"):
        offsets_of(storage)


async def test_a_failed_write_is_retried() -> None:
    storage = FaultyStorage()
    offsets = offsets_of(storage)
    offsets.move(1, 2)
    storage.fail("write_atomically")

    await offsets.write(offsets.writing())

    assert offsets.is_dirty
