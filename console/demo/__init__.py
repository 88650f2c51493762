"""Demo traffic: a small producer and consumer that bring every page alive."""
