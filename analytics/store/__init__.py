"""Read-only access to store files: plan a read, read the files, decode them."""
