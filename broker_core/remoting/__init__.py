"""Sockets that carry frames, independent of the frames' meaning."""
