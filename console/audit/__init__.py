"""The audit: who changed what, and when."""
