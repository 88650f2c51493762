"""Who is connected: producers, consumers, their subscriptions and queue locks."""
