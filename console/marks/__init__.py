"""Marks that people and pipelines set on the charts: a deployment, a test, a move."""
