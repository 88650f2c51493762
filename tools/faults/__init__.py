"""Fault injection: kills, power cuts, bit flips, partitions, and what clients saw of them."""
