"""Brings the appliance up on one machine, and checks it there."""
