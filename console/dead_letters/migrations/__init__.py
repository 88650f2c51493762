"""Migrations of dead letters."""
