"""Broker accounts: who can send, read and administer, as configured in each plain_acl.yml."""
