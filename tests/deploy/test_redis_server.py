"""The Redis that deploy/up starts: who reaches it, and what it does when it is full."""

from __future__ import annotations

import stat
import subprocess
from typing import TYPE_CHECKING

import pytest
import redis

from deploy import redis_server
from tests.support.listeners import listening
from tests.support.waiting import until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.fault

SECONDS = 60.0


@pytest.fixture
def server(tmp_path: Path) -> Iterator[tuple[Path, int]]:
    """Its socket, and its pid."""
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
        until(lambda: redis_server.answers(socket), "redis to answer", seconds=SECONDS)
        yield socket, process.pid
    finally:
        process.terminate()
        process.wait(SECONDS)


def test_only_this_user_reaches_it(server: tuple[Path, int]) -> None:
    socket, pid = server

    assert listening(pid) == {f"unix {socket}"}
    assert stat.S_IMODE(socket.stat().st_mode) == 0o700


def test_a_full_queue_refuses_and_forgets_nothing(server: tuple[Path, int]) -> None:
    client = redis.Redis(unix_socket_path=str(server[0]))
    assert client.config_get("maxmemory-policy") == {"maxmemory-policy": "noeviction"}
    assert client.config_get("maxmemory") == {"maxmemory": str(128 << 20)}
    client.set("kept", b"x")
    client.config_set("maxmemory", 1)

    with pytest.raises(redis.exceptions.OutOfMemoryError):
        client.set("more", b"x" * 1_000)

    assert client.get("kept") == b"x"
    client.close()
