"""Reports: scheduled Spark jobs, their runs and results."""
