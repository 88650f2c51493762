"""Facts about running processes, read from /proc."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path


def tree(pid: int) -> list[int]:
    """Return a process and all its running descendants."""
    children: dict[int, list[int]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if fields[0] not in "ZX":
            children.setdefault(int(fields[1]), []).append(int(stat.parent.name))
    found = [pid]
    for one in found:
        found += children.get(one, [])
    return found


def command_of(pid: int) -> str:
    """Return the command line, joined with spaces; empty when the process is gone."""
    return _read(pid, "cmdline").replace("\0", " ").strip()


def environment_of(pid: int) -> str:
    """Return the environment that a process was started with, one variable a line."""
    return _read(pid, "environ").replace("\0", "\n")


def status_of(pid: int) -> dict[str, str]:
    """Return /proc/PID/status by key; empty when the process is gone."""
    lines = (line.partition(":") for line in _read(pid, "status").splitlines())
    return {key: value.strip() for key, _, value in lines}


def is_alive(pid: int) -> bool:
    """Whether a process runs; zombies count as ended."""
    return status_of(pid).get("State", "Z")[0] not in "ZX"


def open_descriptors(pid: int) -> list[Path]:
    """Return the target of each descriptor of a process; a deleted file's name ends in (deleted).

    Raises:
        OSError: the process is gone, or belongs to another user.
    """
    found = []
    for descriptor in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(FileNotFoundError):
            found.append(descriptor.readlink())
    return found


def listening(pid: int) -> set[tuple[str, int]]:
    """Return the listening addresses of a process as the kernel writes them, with their ports."""
    sockets = {str(one) for one in open_descriptors(pid)}
    found = set()
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A" and f"socket:[{fields[9]}]" in sockets:
                address, _, port = fields[1].rpartition(":")
                found.add((address, int(port, 16)))
    return found


def limits_of(pid: int) -> str:
    """Return its resource limits as the kernel lists them; empty when the process is gone."""
    return _read(pid, "limits")


def _read(pid: int, name: str) -> str:
    try:
        return Path(f"/proc/{pid}/{name}").read_text(errors="replace")
    except OSError:
        return ""
