"""In-memory gateway for tests: one fake per Protocol, all sharing one state."""
