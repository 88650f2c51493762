"""The gateway over the remoting protocol."""
