"""The web console: pages for people who run a broker."""
