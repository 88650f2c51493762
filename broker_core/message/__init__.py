"""The vocabulary of messages: names, properties, ids, flags."""
