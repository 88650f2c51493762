"""Store files, read-only: plan what to read, read it, decode it."""
