"""Pages that show and change what brokers have: topics, groups, offsets, files, accounts."""
