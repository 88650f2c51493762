"""What was counted, by item and by window."""
