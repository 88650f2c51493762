"""The lake: Delta tables that grow from a broker's log, each message in them exactly once."""
