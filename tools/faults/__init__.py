"""Fault injection: kills, power cuts, bit flips, partitions, and the clients' view of them."""
