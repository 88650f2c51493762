"""The JSON configuration files: topics, subscription groups, consumer offsets."""
