"""The same input results in the same files as with a real broker 4.9.7.

Store times are those of the golden records: the clock looks up the time of the record at the log's
end. Hosts are injected.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, NamedTuple

import pytest

from broker_core.broker import Broker
from broker_core.clock import SystemClock
from broker_core.formats import record
from broker_core.message.ids import parse_host
from broker_core.message.names import RMQ_SYS_TRANS_OP_HALF_TOPIC
from broker_core.storage import FileStorage
from broker_core.store.message_store import MessageStore
from broker_core.store.results import PutMessageStatus
from broker_core.verify.verifier import verify
from tests.golden import make_hosts_4_9_7, make_store_4_9_7
from tests.golden.make_store_4_9_7 import (
    BATCH,
    FILE_SIZE,
    batch_body,
    text,
)
from tests.support.archives import unpack
from tests.support.broker import configuration_for
from tests.support.builders import read_all, store_config
from tests.support.clock import ManualClock
from tests.support.raw_remoting import RawClient
from tests.support.time_steps import pass_time

if TYPE_CHECKING:
    from pathlib import Path

    from broker_core.config.store import StoreConfig
    from broker_core.message.message import MessageExt

LEVELS = "1s 2s 3s"
ARCHIVES = {"store": make_store_4_9_7.ARCHIVE, "hosts": make_hosts_4_9_7.ARCHIVE}
DELIVERED_AFTER_MS = 5_000
BORN_TIMESTAMP = slice(40, 48)


class Golden(NamedTuple):
    """A record of the real broker, and its properties as stored."""

    message: MessageExt
    properties: bytes
    data: bytes


class GoldenClock(ManualClock):
    """A clock that returns the time when the real broker stored the next record."""

    def __init__(self, golden: list[Golden]) -> None:
        self._times = {one.message.commit_log_offset: one.message.store_timestamp for one in golden}
        super().__init__(golden[0].message.store_timestamp)
        self.store: MessageStore | None = None

    def now_ms(self) -> int:
        end = -1 if self.store is None else self.store.max_commit_log_offset
        return self._times.get(end, super().now_ms())


def extract(archive: str, root: Path) -> None:
    unpack(ARCHIVES[archive], root)


def config_of(root: Path) -> StoreConfig:
    return store_config(store_path_root_dir=str(root), message_delay_level=LEVELS)


def golden_of(root: Path) -> list[Golden]:
    found = []
    for path in sorted((root / "commitlog").iterdir()):
        view = memoryview(path.read_bytes())
        position = 0
        while view[position + 4 : position + 8] == record.MESSAGE_MAGIC_BYTES:
            head = record.examine(view, position, len(view), None, check_crc=True)
            stored = bytes(view[head.properties_from : head.properties_to])
            data = bytes(view[position : position + head.size])
            found.append(Golden(record.decode(view, position), stored, data))
            position += head.size
    return found


def files_under(root: Path, directory: str) -> dict[str, bytes]:
    paths = (path for path in (root / directory).rglob("*") if path.is_file())
    return {str(path.relative_to(root)): path.read_bytes() for path in paths}


def index_files(root: Path) -> list[bytes]:
    """Return the files in their order; their names are local times of creation."""
    return [path.read_bytes() for path in sorted((root / "index").iterdir())]


def batch_at(golden: list[Golden], index: int) -> str | None:
    """Return the properties of a batch whose first message is at this record."""
    bodies = [one.message.body for one in golden[index : index + len(BATCH)]]
    if bodies != [sent.body for sent in BATCH]:
        return None
    own = text(BATCH[0].properties) + "\x02"
    stored = golden[index].properties.decode()
    assert stored.startswith(own)
    return stored.removeprefix(own)


async def put_all(golden: list[Golden], root: Path) -> None:
    """Put the real broker's messages, through stores with the records' hosts."""
    clock = GoldenClock(golden)
    store: MessageStore | None = None
    host, index = "", 0
    while index < len(golden):
        message, properties, _ = golden[index]
        if message.store_host != host:
            if store is not None:
                await store.shutdown()
            host = message.store_host
            store = MessageStore(config_of(root), clock, FileStorage(), parse_host(host))
            clock.store = store
            store.load()
            await store.start()
        assert store is not None
        born_host = parse_host(message.born_host)
        batch_properties = batch_at(golden, index)
        if batch_properties is not None:
            batch = store.put_batch(
                message.topic,
                message.queue_id,
                batch_body(),
                batch_properties,
                sys_flag=message.sys_flag,
                born_timestamp=message.born_timestamp,
                born_host=born_host,
                reconsume_times=message.reconsume_times,
            )
            assert batch.status is PutMessageStatus.PUT_OK
            index += len(BATCH)
            continue
        single = store.put_message(
            message.topic,
            message.queue_id,
            message.body,
            properties.decode(),
            tags=message.properties.get("TAGS"),
            keys=message.keys,
            uniq_key=message.uniq_key,
            flag=message.flag,
            sys_flag=message.sys_flag,
            born_timestamp=message.born_timestamp,
            born_host=born_host,
            reconsume_times=message.reconsume_times,
            prepared_transaction_offset=message.prepared_transaction_offset,
        )
        assert single.status is PutMessageStatus.PUT_OK
        index += 1
    assert store is not None
    await store.shutdown()


@pytest.mark.parametrize("archive", ARCHIVES)
async def test_the_store_writes_the_bytes_of_the_real_broker(archive: str, tmp_path: Path) -> None:
    original, ours = tmp_path / "original", tmp_path / "ours"
    extract(archive, original)

    await put_all(golden_of(original), ours)

    for directory in ("commitlog", "consumequeue"):
        expected, made = files_under(original, directory), files_under(ours, directory)
        assert sorted(made) == sorted(expected)
        for name, data in expected.items():
            assert made[name] == data, name
    assert index_files(ours) == index_files(original)


def ip_of(host: str) -> str:
    return host.rsplit(":", 1)[0].strip("[]")


def port_of(host: str) -> int:
    return int(host.rsplit(":", 1)[1])


def client_from(port: int, born_host: str) -> RawClient:
    """Connect from the sender's address of a golden record."""
    client = RawClient(port)
    ip = ip_of(born_host)
    family = "TCP6" if ":" in ip else "TCP4"
    client.send_bytes(f"PROXY {family} {ip} {ip} {port_of(born_host)} 1\r\n".encode())
    return client


def comparable(one: Golden) -> tuple[bytes, list[bytes]]:
    """Return a record's bytes without its properties, and the properties sorted."""
    data = one.data.removesuffix(one.properties)
    if one.message.topic == RMQ_SYS_TRANS_OP_HALF_TOPIC:
        # The real broker reads its clock twice for it.
        data = data[: BORN_TIMESTAMP.start] + data[BORN_TIMESTAMP.stop :]
    return data, sorted(one.properties.split(b"\x02"))


async def send_all(archive: str, golden: list[Golden], root: Path) -> None:
    """Send our broker, at the real broker's address, the real one's requests."""
    clock = GoldenClock(golden)
    for store_host in dict.fromkeys(one.message.store_host for one in golden):
        configuration = configuration_for(
            root.parent,
            storePathRootDir=root,
            brokerIP1=ip_of(store_host),
            listenPort=port_of(store_host),
            haProxyProtocolEnable=True,
            proxyProtocolTrusted="127.0.0.1",
            **make_store_4_9_7.FILE_SIZES,
        )
        born_hosts = dict.fromkeys(
            one.message.born_host
            for one in golden
            if one.message.store_host == store_host != one.message.born_host
        )
        broker = Broker(configuration, clock)
        clock.store = broker.storage.store
        broker.load()
        await broker.storage.store.start()
        listening_at = await broker.requests.server.start("127.0.0.1", 0)
        for number, born_host in enumerate(born_hosts):
            await asyncio.to_thread(
                _send_from, archive, listening_at, number, born_host, store_host
            )
        broker.storage.schedule.start()
        await pass_time(clock, DELIVERED_AFTER_MS)
        await broker.requests.server.shutdown()
        await broker.storage.schedule.shutdown()
        await broker.storage.store.shutdown()


def _send_from(archive: str, port: int, number: int, born_host: str, store_host: str) -> None:
    with client_from(port, born_host) as client:
        if archive == "store":
            make_store_4_9_7.send_all(client)
        else:
            make_hosts_4_9_7.send_all(client, number, ip_of(born_host), ip_of(store_host))


@pytest.mark.parametrize("archive", ARCHIVES)
async def test_the_broker_stores_the_same_bytes_as_the_real_broker(
    archive: str, tmp_path: Path
) -> None:
    original, ours = tmp_path / "original", tmp_path / "ours"
    extract(archive, original)
    golden = golden_of(original)

    await send_all(archive, golden, ours)

    made = golden_of(ours)
    assert [one.message.commit_log_offset for one in made] == [
        one.message.commit_log_offset for one in golden
    ]
    for mine, theirs in zip(made, golden, strict=True):
        assert comparable(mine) == comparable(theirs)
    assert files_under(ours, "consumequeue") == files_under(original, "consumequeue")
    assert index_files(ours) == index_files(original)


def test_records_with_every_kind_of_host_are_read(tmp_path: Path) -> None:
    extract("hosts", tmp_path)
    config = config_of(tmp_path)
    golden = golden_of(tmp_path)
    store = MessageStore(config, SystemClock(), FileStorage(), bytes(8))

    report = store.load()

    assert (report.clean_exit, report.truncated_bytes, report.damaged) == (True, 0, [])
    kinds = {(len(parse_host(m.born_host)), len(parse_host(m.store_host))) for m, _, _ in golden}
    assert kinds == {(8, 8), (8, 20), (20, 8), (20, 20)}
    for topic in store.topics():
        for queue_id in store.queue_ids(topic):
            expected = [m for m, _, _ in golden if (m.topic, m.queue_id) == (topic, queue_id)]
            assert read_all(store, topic, queue_id) == expected
    for message, _, data in golden:
        assert bytes(store.look_message(message.commit_log_offset) or b"") == data
        if message.uniq_key:
            found = store.query_message(message.topic, message.uniq_key, 32, 0, 1 << 60)
            assert data in [bytes(one) for one in found]
    store.close()
    assert verify(tmp_path).problems == []


def test_a_file_is_filled_up_to_the_blank_records_eight_bytes(tmp_path: Path) -> None:
    extract("hosts", tmp_path)

    blanks = []
    for path in sorted((tmp_path / "commitlog").iterdir())[:-1]:
        at = max(
            one.message.commit_log_offset + one.message.store_size
            for one in golden_of(tmp_path)
            if one.message.commit_log_offset // FILE_SIZE == int(path.name) // FILE_SIZE
        )
        size, magic = record.BLANK.unpack_from(path.read_bytes(), at % FILE_SIZE)
        assert magic == record.BLANK_MAGIC
        assert size == FILE_SIZE - at % FILE_SIZE
        blanks.append(size)
    assert blanks.count(8) == len(make_hosts_4_9_7.STORE_HOSTS)
    # 7 bytes more are too few for a blank record: the message went to the next file.
    assert sum(size > FILE_SIZE // 2 for size in blanks) == len(make_hosts_4_9_7.STORE_HOSTS)
