"""The history database: SQLite in a separate file, or the console's PostgreSQL.

Statements are written for SQLite, with ? for parameters; otherwise both accept the same SQL. A
separate file keeps a sample every 10 s out of the way of accounts and audit, and can be deleted.
"""

from __future__ import annotations

import fcntl
import sqlite3
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol

import psycopg

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    Parameters = Sequence[object]
    Row = tuple[Any, ...]

BUSY_TIMEOUT_MS = 20_000
PAGE_BYTES = 16_384
"""A block of a busy subject takes about 3 KB, so five share a page."""
CONNECT_TIMEOUT_S = 10
TABLES_LOCK, COLLECTORS_LOCK = 7_236_110, 7_236_111
"""Numbers of PostgreSQL advisory locks; arbitrary but unique."""

TABLES = (
    """
    CREATE TABLE IF NOT EXISTS history_subjects (
        id {id}, kind TEXT NOT NULL, broker TEXT NOT NULL, name TEXT NOT NULL,
        seen_ms BIGINT NOT NULL, UNIQUE (kind, name, broker))
    """,
    "CREATE TABLE IF NOT EXISTS history_layouts (digest TEXT PRIMARY KEY, columns {blob} NOT NULL)",
    """
    CREATE TABLE IF NOT EXISTS history_samples (
        id {id}, source TEXT NOT NULL, at_ms BIGINT NOT NULL, covered_ms BIGINT NOT NULL,
        layout TEXT NOT NULL, numbers {blob} NOT NULL)
    """,
    """
    CREATE TABLE IF NOT EXISTS history_readings (
        source TEXT PRIMARY KEY, at_ms BIGINT NOT NULL, reading {blob} NOT NULL)
    """,
    """
    CREATE TABLE IF NOT EXISTS history_blocks (
        tier INTEGER NOT NULL, block BIGINT NOT NULL, subject BIGINT NOT NULL,
        through BIGINT NOT NULL, points {blob} NOT NULL, PRIMARY KEY (tier, block, subject))
    """,
    """
    CREATE TABLE IF NOT EXISTS history_events (
        id {id}, at_ms BIGINT NOT NULL, what TEXT NOT NULL, broker TEXT NOT NULL)
    """,
    "CREATE INDEX IF NOT EXISTS history_events_at ON history_events (at_ms)",
    "CREATE TABLE IF NOT EXISTS history_notes (name TEXT PRIMARY KEY, note {blob} NOT NULL)",
)


class HistoryError(Exception):
    """The history can't be read or written; the text is the database's error."""


class Database(Protocol):
    """One connection per thread; thread-safe."""

    def transaction(self, *, writes: bool) -> Any:
        """Return a context whose statements see one state and take effect together.

        Raises:
            HistoryError: a statement failed.
        """

    def rows(self, statement: str, parameters: Parameters = ()) -> list[Row]: ...

    def run(self, statement: str, parameters: Parameters = ()) -> None: ...

    def run_many(self, statement: str, parameters: Iterable[Parameters]) -> None: ...

    def bytes_used(self) -> int:
        """Return the bytes of stored data, excluding the space of deleted rows."""

    def lock(self) -> Any:
        """Return a context for the process that writes samples; one process at a time can enter it.

        Raises:
            HistoryError: another process is in it.
        """

    def close(self) -> None: ...


class SqliteDatabase:
    """A file, created by the first connection."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._local = threading.local()

    @contextmanager
    def transaction(self, *, writes: bool) -> Iterator[None]:
        try:
            connection = self._connection()
            connection.execute("BEGIN IMMEDIATE" if writes else "BEGIN")
            try:
                yield
            except BaseException:
                connection.rollback()
                raise
            connection.commit()
        except sqlite3.Error as error:
            raise HistoryError(f"{self._path}: {error}") from error

    def rows(self, statement: str, parameters: Parameters = ()) -> list[Row]:
        return self._connection().execute(statement, parameters).fetchall()

    def run(self, statement: str, parameters: Parameters = ()) -> None:
        self._connection().execute(statement, parameters)

    def run_many(self, statement: str, parameters: Iterable[Parameters]) -> None:
        self._connection().executemany(statement, parameters)

    @contextmanager
    def lock(self) -> Iterator[None]:
        try:
            lock = self._path.with_suffix(".lock").open("a")
        except OSError as error:
            raise HistoryError(f"{self._path} can't be written: {error.strerror}") from error
        with lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                raise HistoryError(f"another collector already writes to {self._path}") from error
            yield

    def bytes_used(self) -> int:
        [(pages,)], [(free,)] = self.rows("PRAGMA page_count"), self.rows("PRAGMA freelist_count")
        return (int(pages) - int(free)) * PAGE_BYTES

    def close(self) -> None:
        """Close this thread's connection."""
        connection = getattr(self._local, "connection", None)
        if connection is not None:
            connection.close()
            self._local.connection = None

    def _connection(self) -> sqlite3.Connection:
        connection: sqlite3.Connection | None = getattr(self._local, "connection", None)
        if connection is None:
            connection = sqlite3.connect(
                self._path, timeout=BUSY_TIMEOUT_MS / 1000, isolation_level=None
            )
            connection.execute(f"PRAGMA page_size={PAGE_BYTES}")
            # Lets pages read while the collector writes.
            connection.execute("PRAGMA journal_mode=WAL")
            connection.execute("PRAGMA synchronous=NORMAL")
            words = {
                "id": "INTEGER PRIMARY KEY AUTOINCREMENT",
                "blob": "BLOB",
            }
            for table in TABLES:
                connection.execute(table.format(**words))
            self._local.connection = connection
        return connection


class PostgresDatabase:
    """The console's own database, from Django's settings."""

    def __init__(self, settings: dict[str, Any]) -> None:
        names = {"NAME": "dbname", "USER": "user", "PASSWORD": "password", "HOST": "host"}
        self._how = {names[key]: settings[key] for key in names if settings.get(key)}
        if settings.get("PORT"):
            self._how["port"] = str(settings["PORT"])
        self._local = threading.local()

    @contextmanager
    def transaction(self, *, writes: bool) -> Iterator[None]:
        try:
            connection = self._connection()
            with connection.transaction():
                mode = "READ WRITE" if writes else "READ ONLY"
                connection.execute(f"SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, {mode}")
                yield
        except psycopg.Error as error:
            if self._connection_is_over():
                self.close()
            raise HistoryError(f"PostgreSQL: {error}") from error

    def rows(self, statement: str, parameters: Parameters = ()) -> list[Row]:
        cursor = self._connection().execute(_for_postgres(statement), parameters)
        return cursor.fetchall()

    def run(self, statement: str, parameters: Parameters = ()) -> None:
        self._connection().execute(_for_postgres(statement), parameters)

    def run_many(self, statement: str, parameters: Iterable[Parameters]) -> None:
        with self._connection().cursor() as cursor:
            cursor.executemany(_for_postgres(statement), parameters)

    @contextmanager
    def lock(self) -> Iterator[None]:
        # The server releases the lock if this process dies, but some time after it is gone.
        try:
            with psycopg.connect(**self._how, autocommit=True) as session:
                [(is_ours,)] = session.execute(
                    "SELECT pg_try_advisory_lock(%s)", (COLLECTORS_LOCK,)
                ).fetchall()
                if not is_ours:
                    raise HistoryError(
                        "another collector already writes to this PostgreSQL database"
                    )
                try:
                    yield
                finally:
                    session.execute("SELECT pg_advisory_unlock(%s)", (COLLECTORS_LOCK,))
        except psycopg.Error as error:
            raise HistoryError(f"PostgreSQL: {error}") from error

    def bytes_used(self) -> int:
        # The table size would include deleted rows until they are vacuumed.
        [(size,)] = self.rows("SELECT COALESCE(SUM(LENGTH(points)), 0) FROM history_blocks")
        return int(size)

    def close(self) -> None:
        """Close this thread's connection."""
        connection = getattr(self._local, "connection", None)
        if connection is not None:
            connection.close()
            self._local.connection = None

    def _connection_is_over(self) -> bool:
        connection = getattr(self._local, "connection", None)
        return connection is None or connection.broken or connection.closed

    def _connection(self) -> psycopg.Connection[Row]:
        connection: psycopg.Connection[Row] | None = getattr(self._local, "connection", None)
        if connection is None:
            connection = psycopg.connect(
                **self._how, autocommit=True, connect_timeout=CONNECT_TIMEOUT_S
            )
            words = {
                "id": "BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY",
                "blob": "BYTEA",
            }
            # Two processes that create the same table at the same time can fail.
            with connection.transaction():
                connection.execute("SELECT pg_advisory_xact_lock(%s)", (TABLES_LOCK,))
                for table in TABLES:
                    connection.execute(table.format(**words))
            self._local.connection = connection
        return connection


def _for_postgres(statement: str) -> str:
    return statement.replace("?", "%s")
