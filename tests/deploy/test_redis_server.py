"""The Redis that deploy/up starts: access to it, and its behaviour when full."""

from __future__ import annotations

import stat
import subprocess
from queue import Empty
from typing import TYPE_CHECKING

import pytest
import redis
from kombu import Connection

from console.celery import app
from console.data.reports import tasks
from deploy.machine import redis_server
from tests.support.listeners import listening
from tests.support.waiting import until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.fault

SECONDS = 60.0


@pytest.fixture
def server(tmp_path: Path) -> Iterator[tuple[Path, int]]:
    """The socket and pid of a Redis server."""
    binary = redis_server.find()
    if binary is None:
        pytest.skip("redis-server is missing (deploy/test all --install adds it)")
    socket = tmp_path / "redis.sock"
    process = subprocess.Popen(
        redis_server.command(binary, socket, tmp_path),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        cwd=tmp_path,
    )
    try:
        until(lambda: redis_server.answers(socket), "Redis to respond", seconds=SECONDS)
        yield socket, process.pid
    finally:
        process.terminate()
        process.wait(SECONDS)


def test_only_this_user_reaches_it(server: tuple[Path, int]) -> None:
    socket, pid = server

    assert listening(pid) == {f"unix {socket}"}
    assert stat.S_IMODE(socket.stat().st_mode) == 0o700


def test_jobs_of_a_killed_worker_are_available_to_the_next_one(
    server: tuple[Path, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    url = f"redis+socket://{server[0]}"
    with Connection(url) as connection:
        queue = connection.SimpleQueue("celery")
        queue.put({"run": 1})
        assert queue.get(timeout=SECONDS).payload == {"run": 1}
        # As at kill -9: neither acknowledged nor returned.
        with pytest.raises(Empty):
            queue.get(timeout=0.1)
        monkeypatch.setattr(app, "connection_for_write", lambda: Connection(url))

        tasks.on_worker_init()

        again = queue.get(timeout=SECONDS)
        again.ack()
    assert again.payload == {"run": 1}
    client = redis.Redis(unix_socket_path=str(server[0]))
    assert (client.zcard("unacked_index"), client.hlen("unacked")) == (0, 0)


def test_a_worker_starts_without_redis(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    url = f"redis+socket://{tmp_path / 'nobody'}"
    monkeypatch.setattr(app, "connection_for_write", lambda: Connection(url))

    tasks.on_worker_init()

    assert "tasks of a killed worker not requeued" in caplog.text


def test_a_full_queue_rejects_but_drops_nothing(server: tuple[Path, int]) -> None:
    client = redis.Redis(unix_socket_path=str(server[0]))
    assert client.config_get("maxmemory-policy") == {"maxmemory-policy": "noeviction"}
    assert client.config_get("maxmemory") == {"maxmemory": str(128 << 20)}
    client.set("kept", b"x")
    client.config_set("maxmemory", 1)

    with pytest.raises(redis.exceptions.OutOfMemoryError):
        client.set("more", b"x" * 1_000)

    assert client.get("kept") == b"x"
    client.close()
