"""Brokers, their disks, their network and their clients in one process, on a clock that jumps."""
