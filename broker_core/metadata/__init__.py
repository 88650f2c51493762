"""The JSON configurations: topics, subscription groups, consumer offsets."""
