"""Third-party code that runs in the broker: interfaces, loading, failures."""
