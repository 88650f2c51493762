"""The message broker: name server, remoting port, CommitLog."""
