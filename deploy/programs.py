"""The processes of an appliance: their commands, and the environment that they share."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

from deploy.requirements import ROOT
from deploy.words import language

if TYPE_CHECKING:
    from collections.abc import Sequence

    from deploy.broker_file import BrokerSettings
    from deploy.options import Options


SLAVE = "slave"
LAKE = "lake"


@dataclass(frozen=True, slots=True)
class Program:
    """One process of the appliance; a lower priority starts earlier and stops later."""

    name: str
    command: Sequence[str]
    priority: int
    stop_seconds: int


def chosen(
    asked: Options,
    broker: BrokerSettings,
    redis_command: Sequence[str] | None,
    *,
    slave: BrokerSettings | None = None,
    with_queue: bool,
    as_root: bool | None = None,
) -> list[Program]:
    """Return the processes; they start in the order of their priority."""
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
        *(*celery, "beat", "--scheduler", "django_celery_beat.schedulers:DatabaseScheduler"),
        *("--loglevel", "INFO", "--pidfile", ""),
    ]
    broker_command = [sys.executable, "-m", "broker_core", "-c", str(broker.file)]
    found = [
        Program("broker", broker_command, priority=20, stop_seconds=60),
        Program("web", web, priority=30, stop_seconds=15),
        Program("collector", collector, priority=35, stop_seconds=15),
    ]
    if asked.lake is not None:
        lake = [sys.executable, "-m", "analytics.lake", "run"]
        found.append(Program(LAKE, lake, priority=37, stop_seconds=60))
    if slave is not None:
        command = [sys.executable, "-m", "broker_core", "-c", str(slave.file)]
        found.append(Program(SLAVE, command, priority=25, stop_seconds=60))
    if redis_command is not None:
        found.append(Program("redis", redis_command, priority=10, stop_seconds=15))
    if with_queue:
        found.append(Program("worker", worker, priority=40, stop_seconds=20))
        found.append(Program("beat", beat, priority=50, stop_seconds=10))
    return found


def variables(
    asked: Options,
    broker: BrokerSettings,
    further_brokers: str,
    slave: BrokerSettings | None = None,
) -> dict[str, str]:
    """Return what all processes find in their environment; no secrets."""
    return {
        "DJANGO_SETTINGS_MODULE": "console.settings",
        "PYTHONPATH": str(ROOT),
        "PYTHONUNBUFFERED": "1",
        "TREBUCHET_BROKERS": own_brokers(broker, further_brokers, slave),
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


def own_brokers(broker: BrokerSettings, further: str, slave: BrokerSettings | None = None) -> str:
    """Return the brokers that the console asks unconfirmed, as name servers may write them."""
    own = f"{broker.advertised}:{broker.listen_port}"
    slaves = "" if slave is None else f"{slave.advertised}:{slave.listen_port}"
    return ";".join(each for each in (own, slaves, broker.console_namesrv, further) if each)
