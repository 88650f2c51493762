"""The brokers of an appliance and their configuration files."""
