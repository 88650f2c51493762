"""Starts the appliance on one machine, and tests it there."""
