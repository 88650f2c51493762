"""Marks that people and pipelines set on charts: a deployment, a test, a migration."""
