"""Results as data: tools write docs/results/*.json, and pages show the figures."""
