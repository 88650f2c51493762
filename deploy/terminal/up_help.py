"""The English help text of deploy/up."""

from __future__ import annotations

DESCRIPTION = """\
Start the whole appliance (name server, broker, console, reports) and stay
in the foreground; Ctrl-C stops all of it."""
EPILOG = """\
environment:
  Each option sets the environment variable in brackets; if both are set, the option wins.
  Settings that may hold a secret have no option, because every user of this machine can read a
  command's arguments:

  TREBUCHET_ADMIN_PASSWORD  the first administrator's password (default: one is generated and
                            printed once)
  TREBUCHET_REDIS_URL       your own Redis, e.g. redis://127.0.0.1:6379/0 (default: one is started
                            on a Unix socket that only this user can open)
  TREBUCHET_BROKER_ACCESS_KEY, TREBUCHET_BROKER_SECRET_KEY (or _SECRET_KEY_FILE)
                            the administrator's account in plain_acl.yml, which the console uses
                            for a broker with aclEnable=true
  TREBUCHET_OTLP_HEADERS    (or _HEADERS_FILE) headers for --otlp-endpoint; see also
                            TREBUCHET_OTLP_TOPIC and TREBUCHET_OTLP_SAMPLE: docs/family.md
  DATABASE_URL              the console's database, e.g. postgres://user@host/name
                            (default: SQLite in the data directory)

ports:
  The broker's ports and directories are set in its configuration: FILE, or broker.conf in the data
  directory, which the first start writes. Additional masters have their own broker.conf in
  brokers/broker-b and so on. gRPC clients connect to grpcListenPort: 8081 unless it is set, and
  0 turns it off. Two appliances can run at the same time if each has its own
  --data, --web, listenPort, grpcListenPort and namesrvListenPort.

exit code:
  0  stopped with Ctrl-C or SIGTERM, and every process worked until then
  1  a process kept ending; the last lines name the process and its log
  2  nothing was started: bad configuration, a port or data directory in use, or a missing
     requirement
"""
