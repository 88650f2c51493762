"""What deploy/up --help says in English."""

from __future__ import annotations

DESCRIPTION = """\
Bring up the whole appliance (name server, broker, console, reports) and
stay in the foreground; Ctrl-C stops all of it."""
EPILOG = """\
environment:
  TREBUCHET_WEB             address of the console's pages (default 127.0.0.1:8000)
  TREBUCHET_DATA            directory for everything written (default ./data in the checkout)
  TREBUCHET_USER            started by root, the user that everything runs as (default
                            trebuchet, a system user that is made when missing); root stays root
  TREBUCHET_ADMIN           name of the first administrator (default admin)
  TREBUCHET_ADMIN_PASSWORD  that administrator's password; without it one is generated and
                            printed once
  TREBUCHET_REDIS_URL       a Redis of your own, e.g. redis://127.0.0.1:6379/0; without it one is
                            started, on a unix socket that only this user can open
  TREBUCHET_ALLOWED_HOSTS   host names, separated by commas, under which the pages may be visited
  TREBUCHET_BEHIND_PROXY    true when a reverse proxy on this machine terminates TLS; with it
                            TREBUCHET_HTTPS=true and TREBUCHET_TRUSTED_ORIGINS=https://name
  TREBUCHET_BROKER_ACCESS_KEY, TREBUCHET_BROKER_SECRET_KEY (or _SECRET_KEY_FILE)
                            the administrator's account in plain_acl.yml with which the console
                            works with a broker whose aclEnable is true
  TREBUCHET_BROKERS         further brokers that it asks with this account, host:port separated by
                            semicolons; others must be confirmed on the overview
  TREBUCHET_SLAVE           true: the same as --slave
  TREBUCHET_LAKE            true, a directory or s3://bucket/prefix: keep the broker's messages as
                            Delta tables there, true in the data directory (docs/lake.md)
  TREBUCHET_LANGUAGE        en or zh-hans: what this command says, and the console to whoever chose
                            none (default: zh-hans where LANG is zh_CN, else en)
  TREBUCHET_LOG_LEVEL       the console's log level (default INFO)
  TREBUCHET_LOG_FORMAT      lines (default) or json: what every process of ours writes to its log
  TREBUCHET_OTLP_ENDPOINT   the collector that the console hands traces to, http://host:4318
                            (default: none); TREBUCHET_OTLP_HEADERS (or _HEADERS_FILE),
                            TREBUCHET_OTLP_TOPIC and TREBUCHET_OTLP_SAMPLE: docs/family.md
  DATABASE_URL              the console's database, e.g. postgres://user@host/name
                            (default: SQLite in the data directory)
  JAVA_HOME                 the Java 17 or newer that runs the reports (default: java on PATH)

ports:
  The broker's ports and directories are set in its configuration: FILE, or broker.conf in the data
  directory, which the first start writes; those of further masters in broker.conf of their own
  directories, brokers/broker-b and so on. Two appliances run side by side when each has its own
  TREBUCHET_DATA, TREBUCHET_WEB, listenPort and namesrvListenPort.

exit code:
  0  it was asked to stop (Ctrl-C or SIGTERM), and every process did its work until then
  1  a process could not be kept running; the last lines say which, and where its log is
  2  nothing was started: bad configuration, a port that is taken, a data directory in use, or
     something missing on this machine
"""
