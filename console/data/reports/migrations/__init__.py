"""Migrations of the reports."""
