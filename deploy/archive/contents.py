"""The parts of an appliance: its brokers, and the files that belong to them.

Files that its configuration places elsewhere (stores, accounts, certificates) get a path below the
data directory, so that a restored appliance is one directory.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from broker_core.config.loading import load
from broker_core.errors import ConfigError
from deploy.archive.manifest import BackupError, Edit
from deploy.archive.store_copy import StorePlace
from deploy.brokers import broker_file, cluster, slave
from deploy.install.requirements import ROOT
from deploy.terminal.translation import translated

if TYPE_CHECKING:
    from broker_core.config.configuration import Configuration

FILE_KEYS = (
    "aclFile",
    "kvConfigPath",
    "tls.config.file",
    "tls.server.certPath",
    "tls.server.keyPath",
    "tls.server.trustCertPath",
    "tls.client.certPath",
    "tls.client.keyPath",
    "tls.client.trustCertPath",
)
"""Keys that name a file which a broker requires."""
RECREATED = frozenset(
    {
        *("logs", "run", "static", "words", "spark-classes", "pipeline", "redis"),
        *("appliance.lock", "history.lock", ".restoring"),
    }
)
"""Files that a start recreates, or that only running processes have."""
LAKE = "lake"
DATABASE = ".sqlite3"
DATABASE_SUFFIXES = ("-wal", "-shm", "-journal")
ACCOUNTS = "conf/plain_acl.yml"
CONSOLE = "console.sqlite3"


@dataclass(slots=True)
class Contents:
    """All parts of an appliance.

    Attributes:
        slaves, masters: their stores.
        broker_files: configurations, by target path.
        outside: files and directories outside the data directory, by target path.
        edits: changes that a restore makes in configurations.
        databases: SQLite databases, by target path.
        lake: the lake's directory, or None.
        left_out: sentences about parts of the appliance that aren't copied.
    """

    data: Path
    slaves: list[StorePlace] = field(default_factory=list)
    masters: list[StorePlace] = field(default_factory=list)
    broker_files: dict[str, Path] = field(default_factory=dict)
    outside: dict[str, Path] = field(default_factory=dict)
    edits: list[Edit] = field(default_factory=list)
    databases: dict[str, Path] = field(default_factory=dict)
    lake: Path | None = None
    left_out: list[str] = field(default_factory=list)

    @property
    def stores(self) -> list[StorePlace]:
        """The stores in copying order, so that no slave has more than its master."""
        return [*self.slaves, *self.masters]

    def skips(self, path: str) -> bool:
        """Return whether a path in the data directory is copied separately, or not at all."""
        top = path.partition("/")[0]
        if top in RECREATED or top == LAKE or path in self.broker_files or path in self.databases:
            return True
        if path.endswith(DATABASE_SUFFIXES):
            return True
        here = (self.data / path).resolve()
        return any(here in (each.paths.root, each.paths.commit_log) for each in self.stores)


def find(
    data: Path, given: Path | None, lake: str | None, database_url: str, *, has_lake: bool
) -> Contents:
    """Find all parts of an appliance.

    given: its broker configuration, if it isn't in the data directory. lake: TREBUCHET_LAKE, or
    None. database_url: DATABASE_URL, empty for the console's own.

    Raises:
        BackupError: there is no appliance, or the broker rejects its configuration.
    """
    if not data.is_dir():
        raise BackupError(translated("The data directory {data} doesn't exist.", data=data))
    found = Contents(data)
    first = _first_file(data, given)
    # Matches how deploy/up -c starts it.
    is_beside = given is not None and not broker_file.names_store(first.read_text(errors="replace"))
    root = broker_file.default_store(data) if is_beside else None
    _add_master(found, cluster.FIRST, first, "", root)
    for directory in sorted((data / "brokers").glob(f"{cluster.FIRST}-*")):
        file = directory / cluster.BROKER_FILE
        if file.is_file():
            _add_master(found, directory.name, file, f"brokers/{directory.name}/")
    for directory in sorted(data.glob(f"{slave.NAME}*")):
        if slave.is_slave_process(directory.name) and (directory / "store").is_dir():
            place = StorePlace.of(
                directory.name, directory / "store", "", f"{directory.name}/store"
            )
            found.slaves.append(place)
    _add_databases(found, database_url)
    _add_lake(found, lake, has_lake=has_lake)
    for path in sorted(data.iterdir()):
        if path.is_symlink() and not found.skips(path.name):
            found.left_out.append(translated("{path} is a symbolic link.", path=path))
    return found


def _first_file(data: Path, given: Path | None) -> Path:
    candidates = (
        [given] if given else [data / cluster.BROKER_FILE, data / "run" / cluster.BROKER_FILE]
    )
    for file in candidates:
        if file.is_file():
            return file
    raise BackupError(
        translated(
            "The broker configuration {file} doesn't exist. Set it with -c, as for deploy/up, "
            "or set another data directory with --data.",
            file=candidates[0],
        )
    )


def _add_master(
    found: Contents, process: str, file: Path, prefix: str, root: Path | None = None
) -> None:
    """Add a broker; root is its store directory, None for the directory in its configuration."""
    configuration = _loaded(file)
    store = configuration.store
    stated = Path(store.store_path_root_dir)
    root = root or stated
    target = f"{prefix}store"
    commit_log = store.store_path_commit_log
    if Path(commit_log) == stated / "commitlog":
        commit_log = ""
    found.masters.append(StorePlace.of(process, root, commit_log, target))
    found.broker_files[f"{prefix}{cluster.BROKER_FILE}"] = file
    keys = {"storePathRootDir": target}
    if commit_log:
        keys["storePathCommitLog"] = f"{target}/commitlog"
    values = dict(configuration.items())
    for key in FILE_KEYS:
        if values.get(key) and (ROOT / Path(values[key]).expanduser()).exists():
            keys[key] = _place_of(found, ROOT / Path(values[key]).expanduser(), prefix)
    usual = root.parent / ACCOUNTS
    if configuration.broker.acl_enable and "aclFile" not in keys and usual.exists():
        keys["aclFile"] = _place_of(found, usual, prefix)
    found.edits.append(Edit(f"{prefix}{cluster.BROKER_FILE}", keys))


def _loaded(file: Path) -> Configuration:
    try:
        configuration, errors = load(str(file))
    except ConfigError as error:
        raise BackupError(str(error)) from error
    if errors:
        raise BackupError(translated("The broker rejected {file}: {why}", file=file, why=errors[0]))
    return configuration


def _place_of(found: Contents, path: Path, prefix: str) -> str:
    """Return the target path of a broker's file; record a file outside the data directory."""
    if path.is_relative_to(found.data) and not path.is_symlink():
        return path.relative_to(found.data).as_posix()
    path = path.resolve()
    for place, known in found.outside.items():
        if known == path:
            return place
    place = f"{prefix}conf/{path.name}"
    number = 2
    while place in found.outside or (found.data / place).exists():
        place = f"{prefix}conf/{number}-{path.name}"
        number += 1
    found.outside[place] = path
    if path.suffix in (".yml", ".yaml") and (path.parent / "acl").is_dir():
        # Account files next to plain_acl.yml.
        found.outside.setdefault(f"{prefix}conf/acl", path.parent / "acl")
    return place


def _add_databases(found: Contents, database_url: str) -> None:
    for path in found.data.glob(f"*{DATABASE}"):
        if path.is_file() and not path.is_symlink():
            found.databases[path.name] = path
    if not database_url:
        if CONSOLE not in found.databases:
            found.left_out.append(translated("The console's database doesn't exist."))
        return
    scheme, _, rest = database_url.partition("://")
    if scheme == "sqlite":
        # As console.env reads it: sqlite:///relative and sqlite:////absolute.
        found.databases[CONSOLE] = (ROOT / rest.removeprefix("/")).resolve()
        return
    found.databases.pop(CONSOLE, None)
    found.left_out.append(
        translated("The console's database is elsewhere (DATABASE_URL). Back it up there, too.")
    )


def _add_lake(found: Contents, lake: str | None, *, has_lake: bool) -> None:
    here = found.data / LAKE
    if lake is not None and "://" in lake:
        found.left_out.append(translated("The lake is elsewhere: {place}.", place=lake))
        return
    is_path = lake is not None and os.sep in lake
    place = Path(lake).expanduser().absolute() if lake and is_path else here
    if place.is_dir():
        found.lake = place
        if not has_lake:
            found.left_out.append(translated("The lake {place} (--without-lake).", place=place))
