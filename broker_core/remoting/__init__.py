"""Sockets that carry frames, whatever the frames mean."""
