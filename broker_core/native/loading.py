"""Choose between compiled and Python twins for plain requests, replay, log reading and gRPC."""

from __future__ import annotations

import importlib.machinery
import importlib.util
import os
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar, cast

from broker_core.errors import ConfigError
from broker_core.native.paths import GRPC, RECORDS, TURN, module_path

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from types import ModuleType

    from broker_core.native.turn import (
        EndTurn,
        NativePlainReplay,
        Numbered,
        PullTurn,
        SendTurn,
        Span,
        Turn,
    )

    Bytes = bytes | bytearray | memoryview

T = TypeVar("T")
VARIABLE = "TREBUCHET_NATIVE"
COMMAND = "python -m broker_core.native.build"


class Native(NamedTuple):
    """The compiled turn, or the reason why it isn't used."""

    send_turn: type[SendTurn] | None
    words: str
    """Which twin is in use and why, for people."""
    crc32: Callable[[bytes], int] | None = None
    """The turn's CRC-32, for the test that compares it."""
    plain_replay: type[NativePlainReplay] | None = None
    sample_records: Callable[[memoryview, int], list[memoryview]] | None = None
    """See broker_core.trace.records."""
    turn: type[Turn] | None = None
    pull_turn: type[PullTurn] | None = None
    end_turn: type[EndTurn] | None = None
    span: type[Span] | None = None
    """See broker_core.trace.recorder."""
    numbered: type[Numbered] | None = None
    """See broker_core.trace.ring."""
    write_entries: Callable[..., tuple[int, int, int, int] | None] | None = None
    """See WriteEntries in broker_core.formats.index_entry."""


class NativeRecords(Protocol):
    """The compiled record reader; arrays can be any object with a buffer of 64-bit integers."""

    COLUMNS: tuple[str, ...]

    def walk(self, data: Bytes, position: int, limit: int, found: object) -> tuple[int, int]: ...
    def read(self, data: Bytes, positions: object, columns: object, is_whole: object) -> None: ...
    def gather(
        self, data: Bytes, starts: object, ends: object, offsets: object, copied: object
    ) -> None: ...
    def encode(
        self, data: Bytes, starts: object, ends: object, codes: object, firsts: object
    ) -> int: ...
    def pairs(self, data: Bytes, starts: object, ends: object, *found: object) -> int: ...
    def last_of_each(self, rows: object, codes: object, distinct: int, kept: object) -> int: ...
    def wrong_checksums(
        self, data: Bytes, starts: object, ends: object, stated: object, wrong: object
    ) -> int: ...


class NativeHeaderDecoder(Protocol):
    """The compiled twin of http2.hpack.HeaderDecoder."""

    @property
    def malformed(self) -> str: ...
    @property
    def list_bytes(self) -> int: ...
    @property
    def list_bytes_max(self) -> int: ...
    @property
    def table(self) -> list[tuple[str, str]]: ...
    @property
    def table_bytes(self) -> int: ...
    def decode(self, block: bytes) -> dict[str, str]: ...


class NativeGrpc(Protocol):
    """The compiled parts of gRPC: header compression, the frame loop and the message codec."""

    def HeaderDecoder(self, list_bytes_max: int) -> NativeHeaderDecoder: ...  # noqa: N802
    def take_frames(self, connection: Any, data: bytes) -> int: ...
    def decode_message(self, kind: type[T], data: bytes) -> T: ...
    def encode_message(self, message: object) -> bytes: ...


def load(environment: Mapping[str, str] = os.environ) -> Native:
    """Load the compiled turn unless TREBUCHET_NATIVE=0; with 1 it is required.

    Raises:
        ConfigError: the compiled turn is required but missing, or the variable has another value.
    """
    wanted = environment.get(VARIABLE, "").strip()
    if wanted not in ("", "0", "1"):
        raise ConfigError(VARIABLE, wanted, "0, 1 or no value")
    if wanted == "0":
        return Native(None, f"Python, because {VARIABLE}=0")
    path = module_path()
    try:
        module = _module(TURN, str(path))
    except (ImportError, OSError) as error:
        reason = f"there is no {path.name}" if not path.exists() else str(error)
        if wanted == "1":
            raise ConfigError(
                VARIABLE, wanted, f"compiled code, but {reason}; run `{COMMAND}` to compile"
            ) from error
        return Native(None, f"Python, because {reason}; run `{COMMAND}` to compile")
    return Native(
        module.SendTurn,
        "compiled",
        module.crc32,
        module.NativePlainReplay,
        module.sample_records,
        module.Turn,
        module.PullTurn,
        module.EndTurn,
        module.Span,
        module.Numbered,
        module.write_entries,
    )


def load_records(environment: Mapping[str, str] = os.environ) -> NativeRecords | None:
    """Load the compiled record reader unless TREBUCHET_NATIVE=0; None means the Python twin."""
    if environment.get(VARIABLE, "").strip() == "0":
        return None
    try:
        return cast("NativeRecords", _module(RECORDS, str(module_path(RECORDS))))
    except (ImportError, OSError):
        return None


def load_grpc(environment: Mapping[str, str] = os.environ) -> NativeGrpc | None:
    """Load the compiled gRPC parts unless TREBUCHET_NATIVE=0; None means the Python twins."""
    if environment.get(VARIABLE, "").strip() == "0":
        return None
    try:
        return cast("NativeGrpc", _module(GRPC, str(module_path(GRPC))))
    except (ImportError, OSError):
        return None


@lru_cache
def _module(name: str, path: str) -> ModuleType:
    name = f"{__package__}.{name}"
    loader = importlib.machinery.ExtensionFileLoader(name, path)
    spec = importlib.util.spec_from_file_location(name, path, loader=loader)
    if spec is None:
        raise ImportError(path)
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module
