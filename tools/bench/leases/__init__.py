"""The cost of leases: pops and acknowledgements of the engine, compared with a bare side log."""
