"""The lake: Delta tables filled from a broker's log, with each message exactly once."""
