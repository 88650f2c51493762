"""The JSON files of brokers: looked at, edited as plans, kept in versions, compared, imported."""
