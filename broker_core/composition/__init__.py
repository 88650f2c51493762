"""What the broker is built of, by concern; `broker.py` puts the parts together."""
