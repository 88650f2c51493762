"""The English help texts of deploy/backup and deploy/restore."""

from __future__ import annotations

BACKUP = """\
Copy a whole appliance, running or stopped: messages, offsets, topics and
groups of each broker, accounts of brokers, TLS material, the console's
database and history, reports, the lake. Producers can send meanwhile."""
BACKUP_EPILOG = """\
TARGET is a new directory, or a new file that ends in .tar or .tar.zst. It contains
passwords and keys, like the data directory: keep it secret.

exit code:
  0  the copy is complete, or --verify found no problem
  1  --verify found files that are missing, truncated or modified
  2  nothing was copied; the last line says why
"""
RESTORE = """\
Create a data directory from a backup of deploy/backup. All files are checked before
any is moved into place. The directory must be empty or must not exist."""
RESTORE_EPILOG = """\
exit code:
  0  the data directory is restored; the last lines say how to start it
  2  nothing was restored; the last lines say why
"""
