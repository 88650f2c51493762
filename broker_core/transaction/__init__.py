"""Transactional messages: half messages, their outcomes, asking producers for them."""
