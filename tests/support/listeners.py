"""The listening sockets of a process and its descendants, read from /proc."""

from __future__ import annotations

import ipaddress
import re
from pathlib import Path

PROC = Path("/proc")
TCP_LISTEN = "0A"
UNIX_ACCEPTS = 0x10000
"""SO_ACCEPTCON in the flags of /proc/net/unix."""


def descendants(pid: int) -> list[int]:
    """Return a process and all its descendants."""
    children: dict[int, list[int]] = {}
    for stat in PROC.glob("[0-9]*/stat"):
        try:
            # The name, in parentheses, can contain any character.
            parent = int(stat.read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue
        children.setdefault(parent, []).append(int(stat.parent.name))
    found = [pid]
    for one in found:
        found += children.get(one, [])
    return found


def listening(pid: int) -> set[str]:
    """Return "tcp HOST:PORT", "udp HOST:PORT" and "unix PATH" of a process and its descendants."""
    inodes = {inode for one in descendants(pid) for inode in _socket_inodes(one)}
    found = set()
    for name, state in (("tcp", TCP_LISTEN), ("tcp6", TCP_LISTEN), ("udp", ""), ("udp6", "")):
        for line in (PROC / "net" / name).read_text().splitlines()[1:]:
            _, local, _, its_state, *_, inode = line.split()[:10]
            if inode in inodes and its_state.startswith(state):
                found.add(f"{name.removesuffix('6')} {_endpoint(local)}")
    for line in (PROC / "net" / "unix").read_text().splitlines()[1:]:
        _, _, _, flags, _, _, inode, *path = line.split(maxsplit=7)
        if inode in inodes and int(flags, 16) & UNIX_ACCEPTS:
            found.add(f"unix {path[0] if path else ''}")
    return found


def _socket_inodes(pid: int) -> list[str]:
    found = []
    try:
        for descriptor in (PROC / str(pid) / "fd").iterdir():
            try:
                target = re.fullmatch(r"socket:\[(\d+)\]", str(descriptor.readlink()))
            except OSError:
                continue
            if target:
                found.append(target[1])
    except OSError:
        # The process has ended.
        return []
    return found


def _endpoint(text: str) -> str:
    """Parse an address as the kernel writes it: words in host order, little-endian here."""
    host, _, port = text.partition(":")
    words = [bytes.fromhex(host[at : at + 8])[::-1] for at in range(0, len(host), 8)]
    address = ipaddress.ip_address(b"".join(words))
    shown = f"[{address}]" if address.version == 6 else str(address)
    return f"{shown}:{int(port, 16)}"
