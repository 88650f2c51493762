"""Bringing the appliance up on one machine, checking it there."""
