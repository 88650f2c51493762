"""Benchmark of the parts of a gRPC call."""
