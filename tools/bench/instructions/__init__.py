"""Instructions per message, counted under callgrind."""
