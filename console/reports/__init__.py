"""Reports: scheduled Spark jobs, their runs, their results."""
