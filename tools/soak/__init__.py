"""Soak test: an appliance under even load for hours."""
