"""The gateway without a broker: one fake for each Protocol, over one state in memory, for tests."""
