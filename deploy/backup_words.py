"""What deploy/backup --help and deploy/restore --help say in English."""

from __future__ import annotations

BACKUP = """\
Copy a whole appliance, running or stopped: messages, offsets, topics and
groups of each broker, accounts of brokers, TLS material, the console's
database and history, reports, the lake. Sends go on meanwhile."""
BACKUP_EPILOG = """\
TARGET is a new directory, or a new file that ends in .tar or .tar.zst. It holds
passwords and keys as the data directory does: keep it as secret.

exit code:
  0  the copy is complete, or --verify found nothing wrong
  1  --verify found files that are missing, cut or altered
  2  nothing was copied; the last line says why
"""
RESTORE = """\
Make a data directory from what deploy/backup wrote: each file is checked before
any takes its place. The directory must be empty, or not exist."""
RESTORE_EPILOG = """\
exit code:
  0  the data directory is there; the last lines say how to start on it
  2  nothing was restored; the last lines say why
"""
