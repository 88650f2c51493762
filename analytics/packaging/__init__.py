"""How the Spark sources become a package of their own; see spark_wheel."""
