"""Shared by the pages of topics and groups: create, change and delete a named configuration."""
