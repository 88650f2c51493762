"""The lake: Delta tables that grow from a broker's log and have each message exactly once."""
