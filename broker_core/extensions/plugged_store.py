"""PluggedMessageStore: a MessageStore behind its plug-ins."""

from __future__ import annotations

from collections.abc import Awaitable, Iterator, Mapping
from types import NoneType
from typing import TYPE_CHECKING, TypeVar

from broker_core.errors import AbortProcessError
from broker_core.extensions.failures import ExtensionFailedError
from broker_core.extensions.store_plug_in import PutBatch, PutMessage
from broker_core.message import properties as message_properties
from broker_core.message.names import PROPERTY_KEYS, PROPERTY_TAGS, PROPERTY_UNIQ_KEY
from broker_core.store.message_store import MessageStore
from broker_core.store.results import (
    GetMessageResult,
    GetMessageStatus,
    PutBatchResult,
    PutMessageResult,
    PutMessageStatus,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from broker_core.extensions.failures import Failures
    from broker_core.extensions.loading import Loaded, StorePlugInFactory
    from broker_core.extensions.store_plug_in import MessageStorePlugIn, PlugInStore
    from broker_core.store.results import MessageFilter

    T = TypeVar("T")


class PluggedMessageStore(MessageStore):
    """A MessageStore whose puts and gets go through plug-ins first. Event loop only after `load`.

    A class of its own, chosen when the broker is composed: a store without plug-ins is not slower
    for there being such a thing. `plug` it before it is used.
    """

    _outermost: PlugInStore

    def plug(self, factories: Sequence[Loaded[StorePlugInFactory]], failures: Failures) -> None:
        """Make the plug-ins, the first one outermost.

        Raises:
            ConfigError: one cannot be made.
        """
        store: PlugInStore = _Store(self)
        for name, make in reversed(factories):
            store = _Link(name, make(store), failures, self)
        self._outermost = store

    def put_message(
        self,
        topic: str,
        queue_id: int,
        body: bytes | memoryview,
        properties: str,
        *,
        tags: str | None,
        keys: str | None,
        uniq_key: str | None,
        flag: int,
        sys_flag: int,
        born_timestamp: int,
        born_host: bytes,
        reconsume_times: int = 0,
        prepared_transaction_offset: int = 0,
    ) -> PutMessageResult:
        """See MessageStore; tags, keys and uniq_key are taken from what the plug-ins hand on."""
        return self._outermost.put_message(
            PutMessage(
                topic=topic,
                queue_id=queue_id,
                body=body,
                properties=_Text(properties),
                flag=flag,
                sys_flag=sys_flag,
                born_timestamp=born_timestamp,
                born_host=born_host,
                reconsume_times=reconsume_times,
                prepared_transaction_offset=prepared_transaction_offset,
            )
        )

    def put_batch(
        self,
        topic: str,
        queue_id: int,
        body: bytes | memoryview,
        batch_properties: str,
        *,
        sys_flag: int,
        born_timestamp: int,
        born_host: bytes,
        reconsume_times: int = 0,
    ) -> PutBatchResult:
        return self._outermost.put_batch(
            PutBatch(
                topic=topic,
                queue_id=queue_id,
                body=body,
                properties=batch_properties,
                sys_flag=sys_flag,
                born_timestamp=born_timestamp,
                born_host=born_host,
                reconsume_times=reconsume_times,
            )
        )

    def get_message(
        self,
        topic: str,
        queue_id: int,
        queue_offset: int,
        max_msg_nums: int,
        message_filter: MessageFilter | None,
    ) -> GetMessageResult | Awaitable[GetMessageResult]:
        return self._outermost.get_message(
            topic, queue_id, queue_offset, max_msg_nums, message_filter
        )

    def look_message(self, commit_log_offset: int) -> memoryview | None:
        return self._outermost.look_message(commit_log_offset)

    def query_message(
        self, topic: str, key: str, max_num: int, begin_ms: int, end_ms: int
    ) -> list[memoryview]:
        return self._outermost.query_message(topic, key, max_num, begin_ms, end_ms)


class _Text(Mapping[str, str]):
    """Properties with the text they were read from, which need not be made again."""

    def __init__(self, text: str) -> None:
        self.text = text
        self._table = message_properties.decode(text)

    def __getitem__(self, name: str) -> str:
        return self._table[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._table)

    def __len__(self) -> int:
        return len(self._table)


class _Store:
    """The store itself, as the innermost plug-in sees it."""

    def __init__(self, store: MessageStore) -> None:
        self._store = store

    def put_message(self, message: PutMessage) -> PutMessageResult:
        table = message.properties
        text = table.text if isinstance(table, _Text) else message_properties.encode(table)
        return MessageStore.put_message(
            self._store,
            message.topic,
            message.queue_id,
            message.body,
            text,
            tags=table.get(PROPERTY_TAGS),
            keys=table.get(PROPERTY_KEYS),
            uniq_key=table.get(PROPERTY_UNIQ_KEY),
            flag=message.flag,
            sys_flag=message.sys_flag,
            born_timestamp=message.born_timestamp,
            born_host=message.born_host,
            reconsume_times=message.reconsume_times,
            prepared_transaction_offset=message.prepared_transaction_offset,
        )

    def put_batch(self, batch: PutBatch) -> PutBatchResult:
        return MessageStore.put_batch(
            self._store,
            batch.topic,
            batch.queue_id,
            batch.body,
            batch.properties,
            sys_flag=batch.sys_flag,
            born_timestamp=batch.born_timestamp,
            born_host=batch.born_host,
            reconsume_times=batch.reconsume_times,
        )

    def get_message(
        self,
        topic: str,
        queue_id: int,
        queue_offset: int,
        max_msg_nums: int,
        message_filter: MessageFilter | None,
    ) -> GetMessageResult | Awaitable[GetMessageResult]:
        return MessageStore.get_message(
            self._store, topic, queue_id, queue_offset, max_msg_nums, message_filter
        )

    def look_message(self, commit_log_offset: int) -> memoryview | None:
        return MessageStore.look_message(self._store, commit_log_offset)

    def query_message(
        self, topic: str, key: str, max_num: int, begin_ms: int, end_ms: int
    ) -> list[memoryview]:
        return MessageStore.query_message(self._store, topic, key, max_num, begin_ms, end_ms)


class _Link:
    """A plug-in in its chain: what it does wrong is an outcome for who called it."""

    def __init__(
        self,
        name: str,
        plug_in: MessageStorePlugIn,
        failures: Failures,
        store: MessageStore,
    ) -> None:
        self._name = name
        self._plug_in = plug_in
        self._failures = failures
        self._store = store

    def put_message(self, message: PutMessage) -> PutMessageResult:
        refused = PutMessageResult(PutMessageStatus.UNKNOWN_ERROR)
        return self._call(PutMessageResult, refused, self._plug_in.put_message, message)

    def put_batch(self, batch: PutBatch) -> PutBatchResult:
        refused = PutBatchResult(PutMessageStatus.UNKNOWN_ERROR, [])
        return self._call(PutBatchResult, refused, self._plug_in.put_batch, batch)

    def get_message(
        self,
        topic: str,
        queue_id: int,
        queue_offset: int,
        max_msg_nums: int,
        message_filter: MessageFilter | None,
    ) -> GetMessageResult | Awaitable[GetMessageResult]:
        nothing = GetMessageResult(
            # Who waits for messages goes on waiting, and nobody moves on.
            GetMessageStatus.OFFSET_FOUND_NULL,
            queue_offset,
            self._store.min_offset_in_queue(topic, queue_id),
            self._store.max_offset_in_queue(topic, queue_id),
        )
        otherwise: GetMessageResult | Awaitable[GetMessageResult] = nothing
        get: Callable[..., GetMessageResult | Awaitable[GetMessageResult]]
        get = self._plug_in.get_message
        result = self._call(
            (GetMessageResult, Awaitable),
            otherwise,
            get,
            *(topic, queue_id, queue_offset, max_msg_nums, message_filter),
        )
        return result if isinstance(result, GetMessageResult) else self._later(result, nothing)

    async def _later(
        self, awaited: Awaitable[GetMessageResult], nothing: GetMessageResult
    ) -> GetMessageResult:
        try:
            result = await awaited
        except (Exception, SystemExit) as error:  # noqa: BLE001
            # The same boundary as in Failures, for a get that had to wait.
            self._failures.raised(self._name, "get_message", error)
            return nothing
        return self._checked(GetMessageResult, nothing, "get_message", result)

    def look_message(self, commit_log_offset: int) -> memoryview | None:
        return self._call(
            (memoryview, NoneType), None, self._plug_in.look_message, commit_log_offset
        )

    def query_message(
        self, topic: str, key: str, max_num: int, begin_ms: int, end_ms: int
    ) -> list[memoryview]:
        query = self._plug_in.query_message
        return self._call(list, [], query, topic, key, max_num, begin_ms, end_ms)

    def _call(
        self,
        expected: type | tuple[type, ...],
        otherwise: T,
        method: Callable[..., T],
        *arguments: object,
    ) -> T:
        try:
            result = self._failures.call(self._name, method, *arguments)
        except ExtensionFailedError:
            return otherwise
        except AbortProcessError as error:
            # Not only requests put and get: a plug-in refuses by its result's status.
            self._failures.raised(self._name, method.__name__, error)
            return otherwise
        return self._checked(expected, otherwise, method.__name__, result)

    def _checked(
        self, expected: type | tuple[type, ...], otherwise: T, method: str, result: T
    ) -> T:
        if isinstance(result, expected):
            return result
        self._failures.note(self._name, f"returned {type(result).__name__} from {method}")
        return otherwise
