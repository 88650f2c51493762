"""The web console for people who operate brokers."""
