"""systemd units for the appliance's processes, each with the strictest sandbox that works.

systemd.exec(5) and systemd.resource-control(5) document the settings; `systemd-analyze security`
rates them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from deploy.install.requirements import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from deploy.processes.programs import Program

Setting = tuple[str, str]

TARGET = "trebuchet.target"
RUNTIME = "trebuchet"
"""The directory below /run for Redis's socket."""
REDIS_SOCKET = f"/run/{RUNTIME}/redis.sock"
PRIVILEGED_PORTS = 1024
HOMES = ("/home/", "/root/", "/run/user/")
LOWERS_PRIORITY = frozenset({"worker", "pipeline"})
"""Queries and the pipeline lower their own priority."""
RUNS_JAVA = frozenset({"pipeline"})
"""Java generates and runs machine code, and reads the machine's size."""
SANDBOX: tuple[Setting, ...] = (
    ("NoNewPrivileges", "yes"),
    ("UMask", "0077"),
    ("LimitCORE", "0"),
    ("LimitNOFILE", "65536"),
    ("ProtectSystem", "strict"),
    ("PrivateTmp", "yes"),
    ("PrivateDevices", "yes"),
    ("DevicePolicy", "closed"),
    ("PrivateIPC", "yes"),
    ("ProtectKernelTunables", "yes"),
    ("ProtectKernelModules", "yes"),
    ("ProtectKernelLogs", "yes"),
    ("ProtectControlGroups", "yes"),
    ("ProtectClock", "yes"),
    ("ProtectHostname", "yes"),
    ("ProtectProc", "invisible"),
    ("LockPersonality", "yes"),
    ("RestrictRealtime", "yes"),
    ("RestrictSUIDSGID", "yes"),
    ("RestrictNamespaces", "yes"),
    ("RemoveIPC", "yes"),
    ("KeyringMode", "private"),
    ("SystemCallArchitectures", "native"),
    ("SystemCallErrorNumber", "EPERM"),
)
SERVICE_CALLS: tuple[Setting, ...] = (
    ("SystemCallFilter", "@system-service"),
    ("SystemCallFilter", "~@privileged @obsolete"),
)
NO_RESOURCES: Setting = ("SystemCallFilter", "~@resources")
"""For processes that never change their priority; raising the file limit is still allowed."""
SENDS = ("TREBUCHET_ALERT_TARGETS", "TREBUCHET_SMTP")
"""If one of these is set, the collector sends alerts to other machines."""
OWN_LIMITS: Setting = ("SystemCallFilter", "setrlimit prlimit64")


@dataclass(frozen=True, slots=True)
class Place:
    """Paths, user and network of the units.

    Attributes:
        reads: files and directories that must be visible, wherever they are.
        writes: the data directory, and writable paths outside it.
        variables: the environment of all processes but Redis; no secrets.
        credentials: files that systemd passes, by variable: NAME_FILE names the file.
        listens: address and port of each process that other machines may reach.
        is_remote: whether the console's database, Redis or brokers may be on other machines.
    """

    user: str
    reads: Sequence[Path]
    writes: Sequence[Path]
    variables: Mapping[str, str]
    credentials: Mapping[str, Path]
    listens: Mapping[str, Sequence[tuple[str, int]]]
    is_remote: bool


def name_of(program: str) -> str:
    return f"trebuchet-{program}.service"


def target(programs: Sequence[Program]) -> str:
    """Return the unit that groups all others."""
    names = " ".join(name_of(one.name) for one in programs)
    return _text(
        ("Unit", [("Description", "Trebuchet, a message broker appliance"), ("Wants", names)]),
        ("Install", [("WantedBy", "multi-user.target")]),
    )


def service(program: Program, before: Sequence[str], place: Place) -> str:
    """Return the unit of one process, which starts after the units `before`."""
    unit = [
        ("Description", f"Trebuchet: {program.name}"),
        ("PartOf", TARGET),
        ("After", " ".join(["network.target", *(name_of(one) for one in before)])),
        # Restart it forever, with increasing delays if systemd supports them.
        ("StartLimitIntervalSec", "0"),
    ]
    return _text(
        ("Unit", unit),
        ("Service", [*_process(program, place), *_sandbox(program.name, place)]),
        ("Install", [("WantedBy", TARGET)]),
    )


def quoted(words: Sequence[str]) -> str:
    """Return words quoted for ExecStart."""
    return " ".join(_quoted(word).replace("$", "$$") for word in words)


def _process(program: Program, place: Place) -> Iterator[Setting]:
    yield "Type", "exec"
    yield "User", place.user
    yield "WorkingDirectory", str(ROOT).replace("%", "%%")
    if program.name == "redis":
        yield "RuntimeDirectory", RUNTIME
        yield "RuntimeDirectoryMode", "0700"
        yield "RuntimeDirectoryPreserve", "restart"
    else:
        for name, value in sorted({**place.variables, **program.variables}.items()):
            yield "Environment", _quoted(f"{name}={value}")
    if program.name != "redis" and not program.is_broker:
        for name, file in sorted(place.credentials.items()):
            yield "LoadCredential", f"{name.lower()}:{str(file).replace('%', '%%')}"
            yield "Environment", f'"{name}_FILE=%d/{name.lower()}"'
    if program.name == "web":
        # Don't create the account, because its password would be in the journal.
        python = program.command[0]
        prepare = [python, "-m", "deploy.commands.prepare", "--without-account"]
        yield "ExecStartPre", quoted(prepare)
    yield "ExecStart", quoted(program.command)
    yield "Restart", "always"
    yield "RestartSec", "2"
    yield "TimeoutStopSec", str(program.stop_seconds)
    yield "KillMode", "mixed"


def _sandbox(name: str, place: Place) -> Iterator[Setting]:
    yield from SANDBOX
    yield from SERVICE_CALLS
    if name in RUNS_JAVA:
        yield "MemoryDenyWriteExecute", "no"
    else:
        yield "MemoryDenyWriteExecute", "yes"
        yield "ProcSubset", "pid"
    if name not in LOWERS_PRIORITY:
        yield NO_RESOURCES
        yield OWN_LIMITS
    yield from _files(name, place)
    yield from _network(name, place)


def _files(name: str, place: Place) -> Iterator[Setting]:
    data, *others = place.writes
    writes = [data, *(path for path in others if not path.is_relative_to(data))]
    reads = [path for path in place.reads if not path.is_relative_to(data)]
    if name == "redis":
        reads, writes = [], [data / "redis"]
    # Home directories are hidden, except for required paths.
    at_home = [path for path in (*reads, *writes) if str(path).startswith(HOMES)]
    yield "ProtectHome", "tmpfs" if at_home else "yes"
    for path in reads:
        if path in at_home:
            yield "BindReadOnlyPaths", _quoted(str(path))
    for path in writes:
        yield "BindPaths" if path in at_home else "ReadWritePaths", _quoted(str(path))


def _network(name: str, place: Place) -> Iterator[Setting]:
    if name == "redis":
        yield "PrivateNetwork", "yes"
        yield "PrivateUsers", "yes"
        yield "RestrictAddressFamilies", "AF_UNIX"
        yield "IPAddressDeny", "any"
        yield "CapabilityBoundingSet", ""
        return
    yield "RestrictAddressFamilies", "AF_INET AF_INET6 AF_UNIX"
    listens = place.listens.get(name, ())
    is_public = any(not host.startswith(("127.", "::1", "localhost")) for host, _ in listens)
    sends = name == "collector" and any(place.variables.get(each) for each in SENDS)
    if not (is_public or place.is_remote or sends):
        yield "IPAddressAllow", "localhost"
        yield "IPAddressDeny", "any"
    if any(port < PRIVILEGED_PORTS for _, port in listens):
        yield "CapabilityBoundingSet", "CAP_NET_BIND_SERVICE"
        yield "AmbientCapabilities", "CAP_NET_BIND_SERVICE"
    else:
        yield "PrivateUsers", "yes"
        yield "CapabilityBoundingSet", ""


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%")
    return f'"{escaped}"'


def _text(*sections: tuple[str, Sequence[Setting]]) -> str:
    return "\n".join(
        f"[{name}]\n" + "".join(f"{key}={value}\n" for key, value in settings)
        for name, settings in sections
    )
