"""What deploy/up --help says in English."""

from __future__ import annotations

DESCRIPTION = """\
Bring up the whole appliance (name server, broker, console, reports) and
stay in the foreground; Ctrl-C stops all of it."""
EPILOG = """\
environment:
  Each option stands for the environment variable in brackets; if both are set, the option wins.
  Settings that may hold a secret have no option, because every user of this machine can read a
  command's arguments:

  TREBUCHET_ADMIN_PASSWORD  the first administrator's password; without it one is generated and
                            printed once
  TREBUCHET_REDIS_URL       a Redis of your own, e.g. redis://127.0.0.1:6379/0; without it one is
                            started, on a unix socket that only this user can open
  TREBUCHET_BROKER_ACCESS_KEY, TREBUCHET_BROKER_SECRET_KEY (or _SECRET_KEY_FILE)
                            the administrator's account in plain_acl.yml that the console uses
                            for a broker with aclEnable=true
  TREBUCHET_OTLP_HEADERS    (or _HEADERS_FILE) headers that --otlp-endpoint needs; see also
                            TREBUCHET_OTLP_TOPIC and TREBUCHET_OTLP_SAMPLE: docs/family.md
  DATABASE_URL              the console's database, e.g. postgres://user@host/name
                            (default: SQLite in the data directory)

ports:
  The broker's ports and directories are set in its configuration: FILE, or broker.conf in the data
  directory, which the first start writes. Further masters have a broker.conf in directories of
  their own, brokers/broker-b and so on. Two appliances run side by side when each has its own
  --data, --web, listenPort and namesrvListenPort.

exit code:
  0  it was stopped with Ctrl-C or SIGTERM, and every process worked until then
  1  it couldn't keep a process running; the last lines name the process and its log
  2  nothing was started: bad configuration, a port that is taken, a data directory in use, or
     something missing on this machine
"""
