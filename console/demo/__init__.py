"""Demo traffic: a small producer and consumer over the real protocol."""
