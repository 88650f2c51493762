"""Masking: what of messages nobody sees without asking for it, and being written down."""
