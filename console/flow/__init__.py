"""The flow: brokers, topics and groups, joined by what runs between them."""
