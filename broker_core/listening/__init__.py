"""Accept connections for every protocol: sockets, TLS, trusted proxies, limits on peers."""
