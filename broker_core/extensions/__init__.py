"""Code of others that runs in the broker: interfaces, loading, failures."""
