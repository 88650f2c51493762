"""SQL over the lake, for one person at a time, in a process that can reach nothing else."""
