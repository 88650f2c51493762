"""Brokers, disks, network and clients in one process, on a simulated clock."""
