"""The processes of an appliance: their commands, and their shared environment."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from deploy.brokers import broker_file, cluster, slave
from deploy.install.requirements import ROOT
from deploy.terminal.translation import language

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from deploy.brokers.broker_file import BrokerSettings
    from deploy.settings.options import Options

# By default, each thread keeps freed memory in its own heap, which glibc seldom releases.
ONE_HEAP = {"MALLOC_ARENA_MAX": "1"}
# The allocators of Arrow, Delta Lake and DuckDB keep tens of MiB after a large batch or merge. Use
# glibc's for Arrow, and configure the others to release memory.
RELEASES_MEMORY = ONE_HEAP | {
    "ARROW_DEFAULT_MEMORY_POOL": "system",
    "DUCKDB_JE_MALLOC_CONF": "dirty_decay_ms:0,muzzy_decay_ms:0",
    "_RJEM_MALLOC_CONF": "background_thread:true,dirty_decay_ms:1000,muzzy_decay_ms:0,narenas:1",
}


@dataclass(frozen=True, slots=True)
class Program:
    """One process of the appliance; a lower priority starts earlier and stops later.

    Attributes:
        variables: additional environment variables of this process.
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
    """Return the processes; they start in order of priority.

    `own` has the brokers by process name.
    """
    celery = [sys.executable]
    if as_root if as_root is not None else os.geteuid() == 0:
        # Celery warns about pickle, which the settings don't accept: tasks are JSON, and only this
        # user can reach our Redis.
        celery += ["-W", "ignore:You're running the worker with superuser privileges"]
    celery += ["-m", "celery", "--quiet", "-A", "console"]
    web = [
        *(sys.executable, "-m", "console.serving"),
        *("--host", asked.web_host, "--port", str(asked.web_port)),
    ]
    collector = [sys.executable, str(ROOT / "manage.py"), "collect"]
    worker = [
        *(*celery, "worker", "--queues", "celery", "--concurrency", "1"),
        *("--prefetch-multiplier", "1", "--loglevel", "INFO"),
        *("--without-gossip", "--without-mingle"),
        *("--hostname", f"worker-{asked.web_port}@%h"),
    ]
    beat = [
        *(*celery, "beat", "--scheduler", "console.data.reports.beat:Scheduler"),
        *("--loglevel", "INFO", "--pidfile", ""),
    ]
    found = [
        *(_broker(name, one) for name, one in own.items()),
        Program("web", web, priority=30, stop_seconds=15, variables=ONE_HEAP),
        Program("collector", collector, priority=35, stop_seconds=15),
    ]
    pipeline = [sys.executable, "-m", "console.data.pipeline.standby"]
    if redis_command is not None:
        found.append(Program("redis", redis_command, priority=10, stop_seconds=15))
    if with_queue:
        found.append(
            Program("pipeline", pipeline, priority=38, stop_seconds=20, variables=RELEASES_MEMORY)
        )
        found.append(Program("worker", worker, priority=40, stop_seconds=20))
        found.append(Program("beat", beat, priority=50, stop_seconds=10))
    return found


def variables(
    asked: Options,
    own: Mapping[str, BrokerSettings],
    further_brokers: str,
    engine: str,
) -> dict[str, str]:
    """Return the shared environment of all processes, without secrets.

    `engine` is the lake's engine.
    """
    broker = own[cluster.FIRST]
    sources = [
        {"broker": one.name, "store": one.store, "commit_log": one.commit_log}
        for one in cluster.masters(own).values()
    ]
    return {
        "DJANGO_SETTINGS_MODULE": "console.settings",
        "PYTHONPATH": str(ROOT),
        "PYTHONUNBUFFERED": "1",
        "TREBUCHET_BROKERS": own_brokers(own, further_brokers),
        "TREBUCHET_COMMIT_LOG": broker.commit_log,
        "TREBUCHET_DATA": str(asked.data),
        "TREBUCHET_LAKE_BROKER": broker.name,
        "TREBUCHET_LAKE_SOURCES": json.dumps(sources),
        "TREBUCHET_LANGUAGE": os.environ.get("TREBUCHET_LANGUAGE", "").strip() or language(),
        "TREBUCHET_NAMESRV": broker.console_namesrv,
        "TREBUCHET_PIPELINE_ENGINE": engine,
        "TREBUCHET_SPARK_CLASSES": os.environ.get(
            "TREBUCHET_SPARK_CLASSES", str(asked.data / "spark-classes")
        ),
        "TREBUCHET_STORE": broker.store,
        "TREBUCHET_WEB": f"{asked.web_host}:{asked.web_port}",
    }


def own_brokers(own: Mapping[str, BrokerSettings], further: str) -> str:
    """Return the brokers that need no confirmation in the console, as name servers list them."""
    addresses = [f"{one.advertised}:{one.listen_port}" for one in own.values()]
    console = own[cluster.FIRST].console_namesrv
    return ";".join(each for each in (*addresses, console, further) if each)


def _broker(name: str, one: BrokerSettings) -> Program:
    command = broker_file.command(one.file, one.grpc_port)
    # The first includes the name server for the others; a slave needs its master.
    priority = 25 if slave.is_slave_process(name) else 20 if name == cluster.FIRST else 22
    return Program(name, command, priority, stop_seconds=60, is_broker=True)
