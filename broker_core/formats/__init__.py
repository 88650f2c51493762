"""Bytes on disk, as pure functions: no I/O."""
