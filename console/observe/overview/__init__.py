"""The state of the brokers at a glance."""
