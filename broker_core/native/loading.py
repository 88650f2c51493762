"""Loading: which of the twins serves plain requests, replays records, reads logs, speaks gRPC."""

from __future__ import annotations

import importlib.machinery
import importlib.util
import os
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar, cast

from broker_core.errors import ConfigError
from broker_core.native.place import GRPC, RECORDS, TURN, place

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
    """The compiled turn, or why it is not used."""

    send_turn: type[SendTurn] | None
    words: str
    """For people: which twin serves, and why."""
    crc32: Callable[[bytes], int] | None = None
    """The turn's own, for the test that compares it."""
    plain_replay: type[NativePlainReplay] | None = None
    sampled: Callable[[memoryview, int], list[memoryview]] | None = None
    """See broker_core.trace.records."""
    turn: type[Turn] | None = None
    pull_turn: type[PullTurn] | None = None
    end_turn: type[EndTurn] | None = None
    span: type[Span] | None = None
    """See broker_core.trace.recorder."""
    numbered: type[Numbered] | None = None
    """See broker_core.trace.ring."""
    write_entries: Callable[..., tuple[int, int, int, int] | None] | None = None
    """See WriteEntries of broker_core.formats.index_entry."""


class NativeRecords(Protocol):
    """The compiled reading of records; arrays are anything with a buffer of 64-bit numbers."""

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
    """The compiled parts of gRPC: header compression, the frame loop, the messages' codec."""

    def HeaderDecoder(self, list_bytes_max: int) -> NativeHeaderDecoder: ...  # noqa: N802
    def take_frames(self, connection: Any, data: bytes) -> int: ...
    def decode_message(self, kind: type[T], data: bytes) -> T: ...
    def encode_message(self, message: object) -> bytes: ...


def load(environment: Mapping[str, str] = os.environ) -> Native:
    """Load the compiled turn, unless TREBUCHET_NATIVE=0; 1: it must be there.

    Raises:
        ConfigError: it must be there, and is not; or the variable says something else.
    """
    wanted = environment.get(VARIABLE, "").strip()
    if wanted not in ("", "0", "1"):
        raise ConfigError(VARIABLE, wanted, "0, 1 or nothing")
    if wanted == "0":
        return Native(None, f"Python, as {VARIABLE}=0 wants it")
    path = place()
    try:
        module = _module(TURN, str(path))
    except (ImportError, OSError) as error:
        reason = f"there is no {path.name}" if not path.exists() else str(error)
        if wanted == "1":
            raise ConfigError(
                VARIABLE, wanted, f"the compiled turn, but {reason}; `{COMMAND}` compiles it"
            ) from error
        return Native(None, f"Python, since {reason}; `{COMMAND}` compiles it")
    return Native(
        module.SendTurn,
        "compiled",
        module.crc32,
        module.NativePlainReplay,
        module.sampled,
        module.Turn,
        module.PullTurn,
        module.EndTurn,
        module.Span,
        module.Numbered,
        module.write_entries,
    )


def load_records(environment: Mapping[str, str] = os.environ) -> NativeRecords | None:
    """Load the compiled reading of records, unless TREBUCHET_NATIVE=0; None: the twin serves."""
    if environment.get(VARIABLE, "").strip() == "0":
        return None
    try:
        return cast("NativeRecords", _module(RECORDS, str(place(RECORDS))))
    except (ImportError, OSError):
        return None


def load_grpc(environment: Mapping[str, str] = os.environ) -> NativeGrpc | None:
    """Load the compiled parts of gRPC, unless TREBUCHET_NATIVE=0; None: the twins serve."""
    if environment.get(VARIABLE, "").strip() == "0":
        return None
    try:
        return cast("NativeGrpc", _module(GRPC, str(place(GRPC))))
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
