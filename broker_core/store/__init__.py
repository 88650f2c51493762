"""Files: the CommitLog, the ConsumeQueues and indexes over it."""
