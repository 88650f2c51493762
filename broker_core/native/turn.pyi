import asyncio
from mmap import mmap

from broker_core.formats.index_entry import Waiting
from broker_core.remoting.connection import Connection
from broker_core.remoting.deferred_answer import DeferredAnswer
from broker_core.store.consume_queue import ConsumeQueue
from broker_core.store.mapped_file import MappedFile
from broker_core.trace.recorder import Span as Span
from broker_core.trace.ring import Numbered as Numbered

class SendTurn:
    def __init__(
        self,
        send: object,
        puts: object,
        store_config: object,
        stats: object,
        tracer: object,
        acknowledge: object,
        parked_pulls: object,
        clock: object,
    ) -> None: ...

class PullTurn:
    def __init__(
        self, pull: object, reader: object, put_state: object, stats: object, clock: object
    ) -> None: ...

class EndTurn:
    def __init__(
        self,
        end_transaction: object,
        transactions: object,
        puts: object,
        store_config: object,
        tracer: object,
        acknowledge: object,
        clock: object,
    ) -> None: ...

class PlainProtocol(asyncio.BufferedProtocol):
    def __init__(self, turn: Turn, connection: Connection) -> None: ...

class Turn:
    def __init__(
        self, sends: SendTurn | None, pulls: PullTurn | None, ends: EndTurn | None
    ) -> None: ...
    @property
    def served_bytes(self) -> int: ...
    @property
    def fallbacks(self) -> dict[str, int]: ...
    def protocol_of(self, connection: Connection) -> PlainProtocol: ...
    def serve(
        self,
        connection: object,
        received: memoryview,
        size: int,
        frame_max: int,
        dispatcher: object,
        room: int,
        requests_max: int,
    ) -> bytes | DeferredAnswer | None: ...

class NativePlainReplay:
    records: int
    store_timestamp: int
    grown: dict[ConsumeQueue, None]
    def __init__(self, queues: object, deleted: object, keys: object, index: object) -> None: ...
    def dispatch(self, file: MappedFile, position: int, limit: int) -> int: ...

def write_entries(
    buffer: mmap | bytearray,
    waiting: list[Waiting],
    slot_num: int,
    entry_num: int,
    number: int,
    begin_timestamp: int,
) -> tuple[int, int, int, int] | None: ...
def sample_records(records: memoryview, sample: int) -> list[memoryview]: ...
def crc32(data: bytes | bytearray | memoryview) -> int: ...
