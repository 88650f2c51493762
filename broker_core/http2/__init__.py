"""HTTP/2 and gRPC transport: frames, header compression, flow control and calls."""
