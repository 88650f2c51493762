"""The brokers' JSON configuration files: view, edit as plans, versions, drift and import."""
