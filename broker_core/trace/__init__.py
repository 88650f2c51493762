"""The live trace: tells watchers what happens to messages."""
