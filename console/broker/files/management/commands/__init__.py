"""Management commands of configuration files."""
