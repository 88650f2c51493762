"""Connected clients: the list of producers, and disconnecting a client."""
