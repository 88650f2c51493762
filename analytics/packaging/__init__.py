"""Packages the Spark sources as a separate wheel; see build_hook."""
