"""Migrations of sending."""
