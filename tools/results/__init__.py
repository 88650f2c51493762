"""Results as data: docs/results/*.json, which tools write and pages of the documents show."""
