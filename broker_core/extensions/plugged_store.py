"""Store plug-ins: a chain of ports between a MessageStore and its users."""

from __future__ import annotations

from collections.abc import Awaitable, Iterator, Mapping
from types import NoneType
from typing import TYPE_CHECKING, Any, TypeVar

from broker_core.errors import AbortProcessError
from broker_core.extensions.failures import ExtensionFailedError
from broker_core.extensions.store_plug_in import DispatchedMessage, PutBatch, PutMessage
from broker_core.formats import batch as batch_format
from broker_core.message import properties as message_properties
from broker_core.message.names import PROPERTY_KEYS, PROPERTY_TAGS, PROPERTY_UNIQ_KEY
from broker_core.store.message_calls import MessageCalls
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
    from broker_core.extensions.loading import ActiveExtension, StorePlugInFactory
    from broker_core.extensions.store_plug_in import MessagePort, MessageStorePlugIn
    from broker_core.store.message_store import MessageStore
    from broker_core.store.results import MessageFilter

    QueueRange = Callable[[str, int], tuple[int, int]]
    OnDispatch = Callable[[DispatchedMessage], None]

T = TypeVar("T")


def plug(
    store: MessageStore,
    factories: Sequence[ActiveExtension[StorePlugInFactory]],
    failures: Failures,
) -> None:
    """Create the plug-ins and put them in front of a store, the first one outermost.

    A store without plug-ins has no overhead.

    Raises:
        ConfigError: a plug-in can't be created.
    """

    def queue_range(topic: str, queue_id: int) -> tuple[int, int]:
        return (
            store.min_offset_in_queue(topic, queue_id),
            store.max_offset_in_queue(topic, queue_id),
        )

    def wrap(calls: MessageCalls) -> MessageCalls:
        dispatchers: list[tuple[str, OnDispatch]] = []
        innermost = _StorePort(calls, dispatchers, failures)
        port: MessagePort = innermost
        for name, make in reversed(factories):
            plug_in = make(port)
            on_dispatch = getattr(plug_in, "on_dispatch", None)
            if on_dispatch is not None:
                dispatchers.insert(0, (name, on_dispatch))
            port = _Link(name, plug_in, failures, queue_range)
        return _calls_of(port)

    store.wrap_calls(wrap)


def _calls_of(port: MessagePort) -> MessageCalls:
    """Return the calls of a MessageStore that go through a port.

    tags, keys and uniq_key are read from the properties that the plug-ins pass on.
    """

    def put_message(
        topic: str,
        queue_id: int,
        body: bytes | memoryview,
        properties: str,
        *,
        tags: str | None,
        keys: str | None,
        uniq_key: str | None,
        **others: Any,
    ) -> PutMessageResult:
        return port.put_message(
            PutMessage(
                topic=topic,
                queue_id=queue_id,
                body=body,
                properties=_Text(properties),
                **others,
            )
        )

    def put_batch(
        topic: str,
        queue_id: int,
        body: bytes | memoryview,
        batch_properties: str,
        **others: Any,
    ) -> PutBatchResult:
        return port.put_batch(
            PutBatch(
                topic=topic,
                queue_id=queue_id,
                body=body,
                properties=batch_properties,
                **others,
            )
        )

    return MessageCalls(
        put_message, put_batch, port.get_message, port.look_message, port.query_message
    )


class _Text(Mapping[str, str]):
    """Properties that keep their original text, which saves encoding it again."""

    def __init__(self, text: str) -> None:
        self.text = text
        self._table = message_properties.decode(text)

    def __getitem__(self, name: str) -> str:
        return self._table[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._table)

    def __len__(self) -> int:
        return len(self._table)


class _StorePort:
    """The store as the innermost plug-in calls it."""

    def __init__(
        self, calls: MessageCalls, dispatchers: list[tuple[str, OnDispatch]], failures: Failures
    ) -> None:
        self._calls = calls
        self._dispatchers = dispatchers
        self._failures = failures
        self.get_message = calls.get_message
        self.look_message = calls.look_message
        self.query_message = calls.query_message

    def put_message(self, message: PutMessage) -> PutMessageResult:
        table = message.properties
        text = table.text if isinstance(table, _Text) else message_properties.encode(table)
        result = self._calls.put_message(
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
        if self._dispatchers and result.status is PutMessageStatus.PUT_OK:
            self._dispatch(
                DispatchedMessage(
                    topic=message.topic,
                    queue_id=message.queue_id,
                    queue_offset=result.queue_offset,
                    commit_log_offset=result.commit_log_offset,
                    properties=table,
                    body_size=len(message.body),
                    sys_flag=message.sys_flag,
                    store_timestamp=result.store_timestamp,
                )
            )
        return result

    def put_batch(self, batch: PutBatch) -> PutBatchResult:
        result = self._calls.put_batch(
            batch.topic,
            batch.queue_id,
            batch.body,
            batch.properties,
            sys_flag=batch.sys_flag,
            born_timestamp=batch.born_timestamp,
            born_host=batch.born_host,
            reconsume_times=batch.reconsume_times,
        )
        if self._dispatchers and result.status is PutMessageStatus.PUT_OK:
            items = batch_format.decode(bytes(batch.body))
            common = batch.properties.encode()
            for number, (_, body, own) in enumerate(items):
                text = batch_format.joined_properties(own, common).decode()
                self._dispatch(
                    DispatchedMessage(
                        topic=batch.topic,
                        queue_id=batch.queue_id,
                        queue_offset=result.queue_offset + number,
                        commit_log_offset=result.commit_log_offsets[number],
                        properties=message_properties.decode(text),
                        body_size=len(body),
                        sys_flag=batch.sys_flag,
                        store_timestamp=result.store_timestamp,
                    )
                )
        return result

    def _dispatch(self, message: DispatchedMessage) -> None:
        for name, on_dispatch in self._dispatchers:
            self._failures.attempt(name, on_dispatch, message)


class _Link:
    """A plug-in in the chain: converts its errors to results for the caller."""

    def __init__(
        self,
        name: str,
        plug_in: MessageStorePlugIn,
        failures: Failures,
        queue_range: QueueRange,
    ) -> None:
        self._name = name
        self._plug_in = plug_in
        self._failures = failures
        self._queue_range = queue_range

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
            # With this status a waiting consumer continues to wait, and no offset moves.
            GetMessageStatus.OFFSET_FOUND_NULL,
            queue_offset,
            *self._queue_range(topic, queue_id),
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
            # AbortProcessError isn't passed on, because some callers don't serve a request: a
            # plug-in refuses with the status of its result.
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
