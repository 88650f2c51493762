"""Timer messages: messages with a delivery time or a delay that the producer chooses."""
