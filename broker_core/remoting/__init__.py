"""Sockets that carry frames; nothing here knows what a frame means."""
