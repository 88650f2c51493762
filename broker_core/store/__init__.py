"""The message store: the CommitLog, and the ConsumeQueues and indexes built from it."""
