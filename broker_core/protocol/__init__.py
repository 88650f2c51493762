"""The remoting wire format: pure bytes, no I/O."""
