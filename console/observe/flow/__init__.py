"""The flow: messages from brokers through topics to groups."""
