"""Samples over time, and the pages, issues and alerts that use them."""
