"""What the pages of topics and of groups share: create, change, delete a configuration by name."""
