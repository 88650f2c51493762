"""Replication: what a broker is in its set, and how a slave follows its master."""
