"""Replication: a broker's role in its set, and how a slave follows its master."""
