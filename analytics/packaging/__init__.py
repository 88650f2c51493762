"""How the Spark sources become a package of their own; see build_hook."""
