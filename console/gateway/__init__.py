"""The only way from the console to a broker."""
