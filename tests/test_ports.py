"""Ports of concurrent test runs."""

from __future__ import annotations

import socket
from contextlib import closing
from typing import TYPE_CHECKING

from tests.support.ports import BLOCK_PORTS, SPACING, PortBlocks

if TYPE_CHECKING:
    from pathlib import Path


def test_two_runs_never_assign_the_same_port_or_its_neighbour(tmp_path: Path) -> None:
    with closing(PortBlocks(tmp_path)) as one, closing(PortBlocks(tmp_path)) as other:
        handed_out = [run.next() for _ in range(BLOCK_PORTS // SPACING + 5) for run in (one, other)]

    ports = [port - below for port in handed_out for below in (0, 2)]
    assert len(ports) == len(set(ports))


def test_a_port_with_a_listener_is_skipped(tmp_path: Path) -> None:
    with closing(PortBlocks(tmp_path)) as blocks:
        port = blocks.next() - SPACING
        with socket.create_server(("127.0.0.1", port - 2)):
            assert blocks.next() < port


def test_a_distant_port_of_one_server_is_not_assigned_to_another(tmp_path: Path) -> None:
    above = 20
    with closing(PortBlocks(tmp_path)) as blocks:
        handed_out = [
            port
            for number in range(BLOCK_PORTS // SPACING)
            for port in (blocks.next(above) + (number % 2) * above, blocks.next())
        ]

    ports = [port + beside for port in handed_out for beside in (-2, 0, 1)]
    assert len(ports) == len(set(ports))
