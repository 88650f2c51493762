"""The C library's allocator, which keeps freed memory between live blocks."""

from __future__ import annotations

import ctypes


def release_free_memory() -> None:
    """Return free memory to the system; takes a few milliseconds per hundred megabytes.

    Use it after work that briefly needs much memory. It works only with glibc's allocator.
    """
    if _trim is not None:
        _trim(0)


_trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
