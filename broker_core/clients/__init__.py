"""Connected clients: producers, consumers, subscriptions and queue locks."""
