"""The pipeline's worker: one job at a time, in one warm Spark session."""
