"""The vocabulary of messages: names, properties, IDs, flags."""
