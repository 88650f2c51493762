"""Sign-in, people, roles and second steps: pages and commands."""
