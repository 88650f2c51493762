"""The command palette: finds pages, topics, groups and brokers, and acts on them."""
