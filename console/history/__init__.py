"""What happened while nobody looked: samples of every broker, kept for a year."""
