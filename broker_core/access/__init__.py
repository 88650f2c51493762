"""Access control: accounts in plain_acl.yml, signatures, what each request needs."""
