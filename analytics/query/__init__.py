"""SQL over the lake, for one person at a time, in a sandboxed process."""
