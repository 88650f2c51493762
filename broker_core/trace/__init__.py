"""The live trace: report to watchers what happens to messages."""
