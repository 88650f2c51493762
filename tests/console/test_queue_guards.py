"""The queue of reports: messages that a worker rejects, and no other users of Redis."""

from __future__ import annotations

import importlib.util
import pickle
from typing import TYPE_CHECKING

import pytest
from celery import Celery
from celery.contrib.testing.worker import start_worker
from django.conf import settings
from kombu import Queue

from tests.support.waiting import until

if TYPE_CHECKING:
    from pathlib import Path

QUEUE = "guarded"
SECONDS = 120.0


class Trap:
    """An object that creates a file when it's unpickled."""

    def __init__(self, path: Path) -> None:
        self._path = str(path)

    def __reduce__(self) -> tuple[object, ...]:
        return (open, (self._path, "w"))


def test_unpickling_the_trap_triggers_it(tmp_path: Path) -> None:
    pickle.loads(pickle.dumps(Trap(tmp_path / "sprung"))).close()

    assert (tmp_path / "sprung").exists()


@pytest.mark.parametrize(
    "content_type", ["application/x-python-serialize", "application/x-yaml", "application/json"]
)
def test_a_worker_ignores_tasks_put_into_its_queue_by_hand(
    tmp_path: Path, content_type: str
) -> None:
    done: list[str] = []
    app = Celery("guarded", set_as_current=False)
    app.config_from_object("django.conf:settings", namespace="CELERY")
    # The settings of the console, except for the queue's location.
    app.conf.update(
        broker_url=f"memory://{tmp_path.name}", task_queues=[Queue(QUEUE)], task_default_queue=QUEUE
    )

    def honest(word: str) -> None:
        done.append(word)

    app.task(name="honest", shared=False)(honest)
    body = pickle.dumps(((Trap(tmp_path / "sprung"),), {}, {}))

    with (
        start_worker(app, pool="solo", perform_ping_check=False),
        app.connection_for_write() as connection,
        connection.channel() as channel,
    ):
        producer = app.amqp.Producer(channel)
        producer.publish(
            body,
            routing_key=QUEUE,
            content_type=content_type,
            content_encoding="binary",
            headers={"task": "honest", "id": "by-hand", "lang": "py"},
        )
        app.send_task("honest", ("after it",))
        until(lambda: "after it" in done, "the honest task", seconds=SECONDS)

    assert done == ["after it"]
    assert not (tmp_path / "sprung").exists()


def test_redis_contains_only_the_queue() -> None:
    """So group names, socket messages and results need no protection there."""
    layers = {name: layer["BACKEND"] for name, layer in settings.CHANNEL_LAYERS.items()}

    assert layers == {"default": "channels.layers.InMemoryChannelLayer"}
    assert not hasattr(settings, "CELERY_RESULT_BACKEND")
    assert not any("redis" in cache["BACKEND"] for cache in settings.CACHES.values())
    assert "redis" not in settings.SESSION_ENGINE
    for module in ("channels_redis", "flower", "django_redis"):
        assert importlib.util.find_spec(module) is None, module
