"""The processes of an appliance: their commands, and the environment that they share."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from deploy import brokers, slave
from deploy.requirements import ROOT
from deploy.words import language

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from deploy.broker_file import BrokerSettings
    from deploy.options import Options

LAKE = "lake"
# Each thread would keep what is free in a heap of its own, seldom given back by glibc.
ONE_HEAP = {"MALLOC_ARENA_MAX": "1"}
# Arrow, Delta Lake and DuckDB bring allocators that keep tens of MiB of what a batch or a merge of
# a day's keys once took. glibc gives Arrow's back; the others are told to.
GIVES_BACK = ONE_HEAP | {
    "ARROW_DEFAULT_MEMORY_POOL": "system",
    "DUCKDB_JE_MALLOC_CONF": "dirty_decay_ms:0,muzzy_decay_ms:0",
    "_RJEM_MALLOC_CONF": "background_thread:true,dirty_decay_ms:1000,muzzy_decay_ms:0,narenas:1",
}


@dataclass(frozen=True, slots=True)
class Program:
    """One process of the appliance; a lower priority starts earlier and stops later.

    Attributes:
        variables: what it alone finds in its environment.
    """

    name: str
    command: Sequence[str]
    priority: int
    stop_seconds: int
    is_broker: bool = False
    variables: Mapping[str, str] = field(default_factory=dict)


def chosen(
    asked: Options,
    own: Mapping[str, BrokerSettings],
    redis_command: Sequence[str] | None,
    *,
    with_queue: bool,
    as_root: bool | None = None,
) -> list[Program]:
    """Return the processes; they start in the order of their priority.

    `own` are the brokers by the names of their processes.
    """
    celery = [sys.executable]
    if as_root if as_root is not None else os.geteuid() == 0:
        # Celery warns of pickle, which the settings do not accept: tasks are JSON, and
        # only this user reaches our Redis.
        celery += ["-W", "ignore:You're running the worker with superuser privileges"]
    celery += ["-m", "celery", "--quiet", "-A", "console"]
    web = [
        *(sys.executable, "-m", "console.serving"),
        *("--host", asked.web_host, "--port", str(asked.web_port)),
    ]
    collector = [sys.executable, str(ROOT / "manage.py"), "collect"]
    worker = [
        *(*celery, "worker", "--concurrency", "1", "--prefetch-multiplier", "1"),
        *("--loglevel", "INFO", "--without-gossip", "--without-mingle"),
        *("--hostname", f"worker-{asked.web_port}@%h"),
    ]
    beat = [
        *(*celery, "beat", "--scheduler", "console.reports.beat:Scheduler"),
        *("--loglevel", "INFO", "--pidfile", ""),
    ]
    found = [
        *(_broker(name, one) for name, one in own.items()),
        Program("web", web, priority=30, stop_seconds=15, variables=ONE_HEAP),
        Program("collector", collector, priority=35, stop_seconds=15),
    ]
    if asked.lake is not None:
        found += [_lake(name, one) for name, one in brokers.masters(own).items()]
    if redis_command is not None:
        found.append(Program("redis", redis_command, priority=10, stop_seconds=15))
    if with_queue:
        found.append(Program("worker", worker, priority=40, stop_seconds=20))
        found.append(Program("beat", beat, priority=50, stop_seconds=10))
    return found


def variables(
    asked: Options,
    own: Mapping[str, BrokerSettings],
    further_brokers: str,
) -> dict[str, str]:
    """Return what all processes find in their environment; no secrets."""
    broker = own[brokers.FIRST]
    return {
        "DJANGO_SETTINGS_MODULE": "console.settings",
        "PYTHONPATH": str(ROOT),
        "PYTHONUNBUFFERED": "1",
        "TREBUCHET_BROKERS": own_brokers(own, further_brokers),
        "TREBUCHET_COMMIT_LOG": broker.commit_log,
        "TREBUCHET_DATA": str(asked.data),
        "TREBUCHET_LAKE_BROKER": broker.name,
        "TREBUCHET_LANGUAGE": os.environ.get("TREBUCHET_LANGUAGE", "").strip() or language(),
        "TREBUCHET_NAMESRV": broker.console_namesrv,
        "TREBUCHET_SPARK_CLASSES": os.environ.get(
            "TREBUCHET_SPARK_CLASSES", str(asked.data / "spark-classes")
        ),
        "TREBUCHET_STORE": broker.store,
        "TREBUCHET_WEB": f"{asked.web_host}:{asked.web_port}",
    }


def own_brokers(own: Mapping[str, BrokerSettings], further: str) -> str:
    """Return the brokers that the console asks unconfirmed, as name servers may write them."""
    addresses = [f"{one.advertised}:{one.listen_port}" for one in own.values()]
    console = own[brokers.FIRST].console_namesrv
    return ";".join(each for each in (*addresses, console, further) if each)


def _broker(name: str, one: BrokerSettings) -> Program:
    command = [sys.executable, "-m", "broker_core", "-c", str(one.file)]
    # The first carries the name server of the others; a slave asks its master.
    priority = 25 if slave.is_one(name) else 20 if name == brokers.FIRST else 22
    return Program(name, command, priority, stop_seconds=60, is_broker=True)


def _lake(name: str, one: BrokerSettings) -> Program:
    # The logs of several brokers go into one lake, each by a process of its own.
    command = [
        *(sys.executable, "-m", "analytics.lake", "run", "--broker", one.name),
        *("--store", one.store, "--commit-log", one.commit_log),
    ]
    process = LAKE + name.removeprefix(brokers.FIRST)
    return Program(process, command, priority=37, stop_seconds=60, variables=GIVES_BACK)
