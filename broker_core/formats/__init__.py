"""On-disk formats as pure functions: no I/O."""
