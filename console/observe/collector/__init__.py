"""The collector: a process that samples every broker, stores the history and looks for issues."""
