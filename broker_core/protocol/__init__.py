"""Remoting on the wire: pure bytes, no I/O."""
