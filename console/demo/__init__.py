"""Demo traffic: a small producer and consumer that fill every page with data."""
