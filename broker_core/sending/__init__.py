"""Sending: where a message goes, whether it may go there, and when it is a dead letter.

Independent of the wire protocols.
"""
