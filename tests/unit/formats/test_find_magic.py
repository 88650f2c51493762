from __future__ import annotations

import subprocess
import sys

from broker_core.formats.record import MESSAGE_MAGIC_BYTES, find_magic

# The kernel aligns mappings of such sizes, which leaves unmapped memory after them.
SEARCH = """
import mmap, sys, tempfile
from broker_core.formats.record import MESSAGE_MAGIC_BYTES, find_magic
for size in (2 << 20, 4 << 20, 16 << 20):
    with tempfile.TemporaryFile() as file:
        file.truncate(size)
        data = mmap.mmap(file.fileno(), 0)
        assert find_magic(data, MESSAGE_MAGIC_BYTES, 0, size) == -1
        assert find_magic(data, MESSAGE_MAGIC_BYTES, size, size) == -1
        data[size - 4096 : size - 4092] = MESSAGE_MAGIC_BYTES
        assert find_magic(data, MESSAGE_MAGIC_BYTES, 0, size) == size - 4096
"""


def test_a_mapping_is_searched_up_to_its_end_and_not_beyond() -> None:
    # In a separate process, which a fault would end.
    done = subprocess.run([sys.executable, "-c", SEARCH], capture_output=True, text=True)

    assert done.returncode == 0, done.stderr


def test_a_magic_code_is_found_within_its_bounds() -> None:
    data = b"\0" * 10 + MESSAGE_MAGIC_BYTES + b"\0" * 10

    assert find_magic(data, MESSAGE_MAGIC_BYTES, 0, len(data)) == 10
    assert find_magic(data, MESSAGE_MAGIC_BYTES, 10, 14) == 10
    assert find_magic(data, MESSAGE_MAGIC_BYTES, 0, 13) == -1
    assert find_magic(data, MESSAGE_MAGIC_BYTES, 11, len(data)) == -1
    assert find_magic(b"", MESSAGE_MAGIC_BYTES, 0, 0) == -1
