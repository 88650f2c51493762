"""Access control: accounts in plain_acl.yml, signatures, the permissions of each request."""
