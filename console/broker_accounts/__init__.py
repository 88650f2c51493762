"""Accounts of brokers: who may send, read and administer there, by plain_acl.yml of each."""
