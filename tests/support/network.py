"""Hosts in separate network namespaces, joined by a router that can drop packets.

Each host has one address. Packets between two hosts go through the router's namespace, where a
rule drops traffic in one or both directions. Needs root and iproute2.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import Self

CLONE_NEWNET = 0x40000000
NAMESPACES = Path("/run/netns")
ROUTER = "router"


def missing() -> str:
    """Return the missing prerequisites for namespaces, or an empty string."""
    if os.geteuid() != 0:
        return "root, for network namespaces"
    if shutil.which("ip") is None:
        return "iproute2's ip, for network namespaces"
    name = f"trebuchet-{os.getpid()}-probe"
    made = subprocess.run(["ip", "netns", "add", name], capture_output=True, text=True, check=False)
    if made.returncode != 0:
        return f"network namespaces ({made.stderr.strip()})"
    _ip("netns", "del", name)
    return ""


class Network:
    """Namespaces that exist while the block runs."""

    def __init__(self, hosts: Sequence[str]) -> None:
        self._hosts = list(hosts)
        self._prefix = f"trebuchet-{os.getpid()}-"
        self._cut: list[tuple[str, str]] = []
        self._slow: list[str] = []
        # A file descriptor of the tests' namespace, to which threads return.
        self._home = -1

    def __enter__(self) -> Self:
        self._home = os.open("/proc/self/ns/net", os.O_RDONLY)
        try:
            for name in (ROUTER, *self._hosts):
                _ip("netns", "add", self._prefix + name)
                _ip("-n", self._prefix + name, "link", "set", "lo", "up")
            for number, host in enumerate(self._hosts):
                self._join(number, host)
            self.run(ROUTER, "sysctl", "-qw", "net.ipv4.ip_forward=1")
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for name in (*self._hosts, ROUTER):
            subprocess.run(
                ["ip", "netns", "del", self._prefix + name], capture_output=True, check=False
            )
        os.close(self._home)

    def address(self, host: str) -> str:
        return f"10.77.{self._hosts.index(host)}.2"

    def prefix(self, host: str) -> list[str]:
        """Return the command prefix that runs a command on a host."""
        return ["ip", "netns", "exec", self._prefix + host]

    def run(self, host: str, *command: str) -> None:
        subprocess.run([*self.prefix(host), *command], check=True, capture_output=True)

    @contextmanager
    def inside(self, host: str) -> Iterator[None]:
        """Create this thread's sockets on the host."""
        there = os.open(NAMESPACES / (self._prefix + host), os.O_RDONLY)
        try:
            _enter(there)
            try:
                yield
            finally:
                _enter(self._home)
        finally:
            os.close(there)

    def cut(self, sender: str, receiver: str) -> None:
        """Drop traffic from one host to another until `heal`."""
        self._rule("add", sender, receiver)
        self._cut.append((sender, receiver))

    def slow(self, host: str, bits_per_second: int) -> None:
        """Limit the bandwidth to a host until `heal`."""
        link = f"to{self._hosts.index(host)}"
        rate = ("rate", f"{bits_per_second}bit", "burst", "16kb", "latency", "1s")
        self.run(ROUTER, "tc", "qdisc", "add", "dev", link, "root", "tbf", *rate)
        self._slow.append(link)

    def heal(self) -> None:
        """Forward all traffic again at full speed."""
        while self._cut:
            self._rule("del", *self._cut.pop())
        while self._slow:
            self.run(ROUTER, "tc", "qdisc", "del", "dev", self._slow.pop(), "root")

    def _rule(self, action: str, sender: str, receiver: str) -> None:
        places = ("from", self.address(sender), "to", self.address(receiver))
        _ip("-n", self._prefix + ROUTER, "rule", action, *places, "blackhole")

    def _join(self, number: int, host: str) -> None:
        router, there, subnet = self._prefix + ROUTER, self._prefix + host, f"10.77.{number}"
        link = f"to{number}"
        pair = ("link", "add", link, "type", "veth", "peer", "name", "eth0", "netns", there)
        _ip("-n", router, *pair)
        _ip("-n", router, "addr", "add", f"{subnet}.1/30", "dev", link)
        _ip("-n", router, "link", "set", link, "up")
        _ip("-n", there, "addr", "add", f"{subnet}.2/30", "dev", "eth0")
        _ip("-n", there, "link", "set", "eth0", "up")
        _ip("-n", there, "route", "add", "default", "via", f"{subnet}.1")


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True, text=True)


def _enter(descriptor: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.setns(descriptor, CLONE_NEWNET) != 0:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error), "setns")
