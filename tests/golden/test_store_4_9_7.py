"""We read and continue a store of a real broker 4.9.7."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest

from broker_core.clock import SystemClock
from broker_core.formats import record
from broker_core.message import properties as message_properties
from broker_core.storage import FileStorage
from broker_core.store.message_store import MessageStore
from broker_core.verify.verifier import verify
from tests.golden.make_store_4_9_7 import ARCHIVE, BATCH, SENT, Sent
from tests.support.archives import unpack
from tests.support.builders import HOST, put, read_all, store_config

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from broker_core.config.store import StoreConfig
    from broker_core.message.message import MessageExt


@pytest.fixture
def root(tmp_path: Path) -> Path:
    unpack(ARCHIVE, tmp_path)
    return tmp_path


@pytest.fixture
def config(root: Path) -> StoreConfig:
    return store_config(store_path_root_dir=str(root), message_delay_level="1s 2s 3s")


@pytest.fixture
def store(config: StoreConfig) -> Iterator[MessageStore]:
    store = MessageStore(config, SystemClock(), FileStorage(), HOST)
    report = store.load()
    assert report.clean_exit
    assert (report.truncated_bytes, report.damaged, report.units_written) == (0, [], 0)
    yield store
    store.close()


def expected_messages(topic: str, queue_id: int) -> list[Sent]:
    return [one for one in [*SENT, *BATCH] if (one.topic, one.queue_id) == (topic, queue_id)]


def client_properties(message: MessageExt) -> dict[str, str]:
    added = {"CLUSTER", "WAIT", "REAL_TOPIC", "REAL_QID"}
    return {key: value for key, value in message.properties.items() if key not in added}


@pytest.mark.parametrize(
    ("topic", "queue_id"),
    [("plain", n) for n in range(4)] + [("many", n) for n in range(3)] + [("batch", 0)],
)
def test_messages_sent_to_the_real_broker_can_be_read(store, topic, queue_id):
    messages = read_all(store, topic, queue_id)

    sent = expected_messages(topic, queue_id)
    # Delayed and half messages are stored when they are due, after the others.
    by_body = {(one.body, str(one.properties.get("KEYS"))): one for one in sent}
    assert len(messages) == len(sent)
    for message in messages:
        one = by_body[message.body, str(message.keys)]
        properties = {key: value for key, value in one.properties.items() if key != "WAIT"}
        assert client_properties(message) == properties
        assert message.flag == one.flag
        assert message.born_host.startswith("127.0.0.1:")
        assert message.sys_flag == (8 if one.sys_flag == 4 else one.sys_flag)


@pytest.mark.parametrize("key", ["red", "green", "键", "AaAa", "BBBB", "polygenelubricants"])
def test_the_real_brokers_index_can_be_queried(store, key):
    (found,) = store.query_message("plain", key, 32, 0, 1 << 60)

    assert key in (record.decode(found).keys or "")


def test_messages_are_found_in_every_index_file(store):
    for one in SENT:
        uniq_key = one.properties.get("UNIQ_KEY")
        if uniq_key and one.topic == "many":
            (found,) = store.query_message("many", uniq_key, 32, 0, 1 << 60)
            assert record.decode(found).body == one.body


def test_every_record_is_encoded_to_the_real_brokers_bytes(root: Path) -> None:
    count = 0
    for path in sorted((root / "commitlog").iterdir()):
        view = memoryview(path.read_bytes())
        position = 0
        while view[position + 4 : position + 8] == record.MESSAGE_MAGIC_BYTES:
            message = record.decode(view, position)
            original = bytes(view[position : position + message.store_size])
            head = record.examine(view, position, len(view), None, check_crc=True)
            encoded = bytearray(message.store_size)
            record.encode_into(
                encoded,
                0,
                topic=message.topic.encode(),
                queue_id=message.queue_id,
                queue_offset=message.queue_offset,
                commit_log_offset=message.commit_log_offset,
                body=message.body,
                properties=bytes(view[head.properties_from : head.properties_to]),
                flag=message.flag,
                sys_flag=message.sys_flag,
                born_timestamp=message.born_timestamp,
                born_host=original[48:56],
                store_timestamp=message.store_timestamp,
                store_host=original[64:72],
                reconsume_times=message.reconsume_times,
                prepared_transaction_offset=message.prepared_transaction_offset,
            )
            assert encoded == original
            count += 1
            position += message.store_size
        assert view[position + 4 : position + 8] in {b"\xcb\xd4\x31\x94", bytes(4)}
    assert count > len(SENT)


def test_rebuilt_queues_and_index_have_the_real_brokers_bytes(
    root: Path, config: StoreConfig
) -> None:
    originals = {
        path.relative_to(root): path.read_bytes()
        for path in (root / "consumequeue").rglob("0" * 10 + "*")
    }
    index = [path.read_bytes() for path in sorted((root / "index").iterdir())]
    shutil.rmtree(root / "consumequeue")
    shutil.rmtree(root / "index")
    (root / "abort").touch()
    store = MessageStore(config, SystemClock(), FileStorage(), HOST)

    report = store.load()
    store.close()

    assert report.units_written == report.records
    for path, data in originals.items():
        assert (root / path).read_bytes() == data, path
    assert [path.read_bytes() for path in sorted((root / "index").iterdir())] == index


def test_the_verifier_finds_no_error(root: Path) -> None:
    report = verify(root)

    assert report.problems == []
    assert report.commit_log["records"] == report.consume_queues["units"]
    assert report.index["files"] == 2


async def test_our_broker_continues_in_the_real_brokers_store(
    root: Path, config: StoreConfig
) -> None:
    store = MessageStore(config, SystemClock(), FileStorage(), HOST)
    store.load()
    await store.start()
    before = store.max_offset_in_queue("many", 0)

    results = [
        put(store, "many", 0, b"ours%d" % n, tags="T", keys=f"ours{n}", uniq_key=f"{n:032X}")
        for n in range(300)
    ]
    await store.shutdown()

    assert [result.queue_offset for result in results] == list(range(before, before + 300))
    report = verify(root)
    assert report.problems == []
    assert report.clean_exit


def test_properties_equal_the_sent_ones_in_any_order(store) -> None:
    (message,) = (m for m in read_all(store, "plain", 2))

    encoded = message_properties.encode(message.properties)
    assert message_properties.decode(encoded) == message.properties
    assert message.properties["名"] == "值 🎉"
