"""SQL over the lake: a page to ask in, and the processes that answer."""
