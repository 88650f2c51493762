"""The collector: a process that samples every broker, keeps the history and looks for trouble."""
