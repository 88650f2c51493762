from __future__ import annotations

import socket

from deploy.machine import ports
from tests.support.ports import free_port


def test_a_free_port_has_no_problem() -> None:
    assert ports.port_problem("127.0.0.1", free_port()) is None


def test_a_port_with_a_listener_is_in_use() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]

        assert ports.port_problem("127.0.0.1", port) == "is in use by another process"
        assert ports.port_problem("0.0.0.0", port) == "is in use by another process"
        assert ports.accepts("0.0.0.0", port)
    assert not ports.accepts("127.0.0.1", port)


def test_an_address_of_another_machine_cannot_be_used() -> None:
    reason = ports.port_problem("192.0.2.1", free_port())

    assert reason == "can't be used: this machine doesn't have the address"


def test_an_unresolvable_name_cannot_be_used() -> None:
    reason = ports.port_problem("no-such-host.invalid", free_port())

    assert reason == "can't be used: the address doesn't exist"


def test_a_server_that_does_not_speak_http_is_not_healthy() -> None:
    assert not ports.is_healthy("127.0.0.1", free_port())
