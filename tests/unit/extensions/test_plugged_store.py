from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from broker_core.errors import AbortProcessError
from broker_core.extensions import plugged_store
from broker_core.extensions.failures import Failures
from broker_core.extensions.loading import ActiveExtension
from broker_core.extensions.store_plug_in import AbstractPluginMessageStore
from broker_core.store.message_store import MessageStore
from broker_core.store.put import MessagePut
from broker_core.store.reads import MessageReader
from broker_core.store.results import GetMessageResult, GetMessageStatus, PutMessageStatus
from tests.support.builders import HOST, put, read_all, store_config
from tests.support.clock import ManualClock
from tests.support.faulty_storage import FaultyStorage

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from broker_core.extensions.store_plug_in import (
        DispatchedMessage,
        MessagePort,
        PutBatch,
        PutMessage,
    )
    from broker_core.store.message_calls import MessageCalls
    from broker_core.store.results import PutBatchResult, PutMessageResult

CONTEXT: Any = None


class Marking(AbstractPluginMessageStore):
    """Writes its mark before each body."""

    def __init__(self, mark: bytes, next_port: MessagePort) -> None:
        super().__init__(CONTEXT, next_port)
        self.mark = mark

    def put_message(self, message: PutMessage) -> PutMessageResult:
        return super().put_message(replace(message, body=self.mark + bytes(message.body)))


class Broken(AbstractPluginMessageStore):
    """Does the action passed to its constructor, in each method."""

    def __init__(self, do: Callable[[], Any], next_port: MessagePort) -> None:
        super().__init__(CONTEXT, next_port)
        self._do = do

    def put_message(self, _: PutMessage) -> Any:
        return self._do()

    def put_batch(self, _: PutBatch) -> Any:
        return self._do()

    def get_message(self, *_: Any) -> Any:
        return self._do()

    def look_message(self, _: int) -> Any:
        return self._do()

    def query_message(self, *_: Any) -> Any:
        return self._do()


def raise_value_error() -> None:
    raise ValueError("broken")


def refuse() -> None:
    raise AbortProcessError(13, "no")


@pytest.fixture
async def store() -> AsyncIterator[MessageStore]:
    one = MessageStore(store_config(), ManualClock(), FaultyStorage(), HOST)
    one.load()
    await one.start()
    yield one
    await one.shutdown()


def plug(store: MessageStore, *makers: Callable[[MessagePort], Any]) -> Failures:
    failures = Failures()
    loaded = [ActiveExtension(f"p{number}", make) for number, make in enumerate(makers)]
    plugged_store.plug(store, loaded, failures)
    return failures


def marking(mark: bytes) -> Callable[[MessagePort], Any]:
    return lambda next_port: Marking(mark, next_port)


def broken(do: Callable[[], Any]) -> Callable[[MessagePort], Any]:
    return lambda next_port: Broken(do, next_port)


def test_the_first_plug_in_is_the_outermost(store: MessageStore) -> None:
    plug(store, marking(b"first "), marking(b"last "))

    put(store, body=b"body")

    assert [message.body for message in read_all(store)] == [b"last first body"]


def test_a_hook_that_passes_everything_on_changes_nothing(store: MessageStore) -> None:
    plug(store, lambda next_port: AbstractPluginMessageStore(CONTEXT, next_port))

    result = put(store, body=b"body", tags="A", keys="k1 k2", uniq_key="U", more={"own": "1"})

    (message,) = read_all(store)
    assert message.properties == {"TAGS": "A", "KEYS": "k1 k2", "UNIQ_KEY": "U", "own": "1"}
    assert store.look_message(result.commit_log_offset) is not None
    assert len(store.query_message("TopicTest", "k2", 32, 0, 1 << 62)) == 1


def test_other_properties_make_the_message_searchable(store: MessageStore) -> None:
    class Keyed(AbstractPluginMessageStore):
        def put_message(self, message: PutMessage) -> PutMessageResult:
            table = {**message.properties, "KEYS": "found"}
            return super().put_message(replace(message, properties=table))

    plug(store, lambda next_port: Keyed(CONTEXT, next_port))

    put(store, keys="given")

    assert len(store.query_message("TopicTest", "found", 32, 0, 1 << 62)) == 1
    assert store.query_message("TopicTest", "given", 32, 0, 1 << 62) == []


def test_copies_created_by_the_broker_pass_the_plug_ins(store: MessageStore) -> None:
    put(store, body=b"body")
    (message,) = read_all(store)
    plug(store, marking(b"m "))

    store.put_copy(message, "Other", 0, message.properties)

    assert [copy.body for copy in read_all(store, "Other")] == [b"m body"]


@pytest.mark.parametrize("do", [raise_value_error, refuse, lambda: "?"])
def test_each_failure_is_a_counted_outcome(store: MessageStore, do: Callable[[], Any]) -> None:
    put(store, keys="k")
    failures = plug(store, broken(do))

    assert put(store).status is PutMessageStatus.UNKNOWN_ERROR
    batch = store.put_batch("T", 0, b"", "", sys_flag=0, born_timestamp=0, born_host=HOST)
    assert batch.status is PutMessageStatus.UNKNOWN_ERROR
    assert store.look_message(0) is None
    assert store.query_message("TopicTest", "k", 32, 0, 1 << 62) == []
    got = store.get_message("TopicTest", 0, 0, 32, None)
    assert isinstance(got, GetMessageResult)
    assert (got.status, got.next_begin_offset, got.max_offset) == (
        GetMessageStatus.OFFSET_FOUND_NULL,
        0,
        1,
    )
    assert failures.counts == {"p0": 5}


def test_a_plug_in_sees_the_next_plug_ins_failure_as_a_result(
    store: MessageStore,
) -> None:
    failures = plug(store, marking(b"m "), broken(raise_value_error))

    assert put(store).status is PutMessageStatus.UNKNOWN_ERROR
    assert failures.counts == {"p1": 1}


async def test_a_waiting_get_may_fail_later(store: MessageStore) -> None:
    async def later() -> Any:
        await asyncio.sleep(0)
        raise ValueError("broken")

    failures = plug(store, broken(later))

    waiting = store.get_message("TopicTest", 0, 0, 32, None)
    assert not isinstance(waiting, GetMessageResult)
    assert (await waiting).status is GetMessageStatus.OFFSET_FOUND_NULL
    assert failures.counts == {"p0": 1}


def test_a_batch_passes_whole(store: MessageStore) -> None:
    seen: list[PutBatch] = []

    class Counting(AbstractPluginMessageStore):
        def put_batch(self, batch: PutBatch) -> PutBatchResult:
            seen.append(batch)
            return super().put_batch(batch)

    plug(store, lambda next_port: Counting(CONTEXT, next_port))
    body = bytes.fromhex("00000019 00000000 00000000 00000000 00000001 61 0003 6b0176")
    body = (len(body)).to_bytes(4, "big") + body[4:]

    result = store.put_batch(
        "T", 0, body, "CLUSTER\x01c", sys_flag=0, born_timestamp=7, born_host=HOST
    )

    assert result.status is PutMessageStatus.PUT_OK
    assert [(one.topic, one.born_timestamp, one.properties) for one in seen] == [
        ("T", 7, "CLUSTER\x01c")
    ]
    assert [message.body for message in read_all(store, "T")] == [b"a"]


class Dispatching(AbstractPluginMessageStore):
    """Records dispatched messages, and whether it could read the record."""

    def __init__(self, heard: list[tuple[str, int, int, str | None]], next_port: MessagePort):
        super().__init__(CONTEXT, next_port)
        self.heard = heard

    def on_dispatch(self, message: DispatchedMessage) -> None:
        assert self.next.look_message(message.commit_log_offset) is not None
        keys = message.properties.get("KEYS")
        self.heard.append((message.topic, message.queue_offset, message.body_size, keys))


def test_a_subscribing_plug_in_is_notified_of_each_stored_message(store: MessageStore) -> None:
    heard: list[tuple[str, int, int, str | None]] = []
    plug(store, marking(b"marked "), lambda port: Dispatching(heard, port))
    body = bytes.fromhex("00000019 00000000 00000000 00000000 00000001 61 0003 6b0176")
    item = (len(body)).to_bytes(4, "big") + body[4:]

    put(store, body=b"body", keys="k")
    put(store, topic="x" * 300)
    store.put_batch("T", 0, item * 2, "KEYS\x01all", sys_flag=0, born_timestamp=7, born_host=HOST)

    assert heard == [("TopicTest", 0, 11, "k"), ("T", 0, 1, "all"), ("T", 1, 1, "all")]


def test_dispatchers_are_called_in_the_order_of_the_plug_ins(store: MessageStore) -> None:
    order: list[str] = []

    class Named(AbstractPluginMessageStore):
        def __init__(self, name: str, next_port: MessagePort) -> None:
            super().__init__(CONTEXT, next_port)
            self.name = name

        def on_dispatch(self, _: DispatchedMessage) -> None:
            order.append(self.name)

    plug(store, lambda port: Named("first", port), lambda port: Named("last", port))

    put(store)

    assert order == ["first", "last"]


def test_a_dispatcher_that_fails_changes_nothing(store: MessageStore) -> None:
    class Failing(AbstractPluginMessageStore):
        def on_dispatch(self, _: DispatchedMessage) -> None:
            raise ValueError("broken")

    failures = plug(store, lambda port: Failing(CONTEXT, port))

    assert put(store).status is PutMessageStatus.PUT_OK
    assert put(store).status is PutMessageStatus.PUT_OK
    assert failures.counts == {"p0": 2}
    assert len(read_all(store)) == 2


def test_a_store_without_plug_ins_is_called_directly(store: MessageStore) -> None:
    calls: list[MessageCalls] = []

    def look(own: MessageCalls) -> MessageCalls:
        calls.append(own)
        return own

    store.wrap_calls(look)

    assert calls[0].put_message.__func__ is MessagePut.put_message  # type: ignore[attr-defined]
    assert calls[0].get_message.__func__ is MessageReader.get_message  # type: ignore[attr-defined]
