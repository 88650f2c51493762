"""What is not ours and runs in the broker: interfaces, loading, failures."""
