"""How to connect a client: addresses and snippets for pages that have nothing to show yet."""
