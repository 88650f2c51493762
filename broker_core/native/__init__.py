"""The compiled twin of the hottest path: plain sends, a received buffer at a time."""
