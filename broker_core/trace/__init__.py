"""What happens to a message, told to whoever watches."""
