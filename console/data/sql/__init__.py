"""SQL over the lake: the query page, and the processes that run queries."""
