"""HTTP/2 and gRPC on a port: frames, header compression, flow control, calls; not their meaning."""
