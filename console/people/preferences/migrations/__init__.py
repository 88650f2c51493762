"""Migrations of preferences."""
