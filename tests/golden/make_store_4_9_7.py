"""Write store-4.9.7.tar.xz: a small store, written by a real broker 4.9.7.

    python -m tests.golden.make_store_4_9_7

`SENT` lists the sent messages, for tests. The broker stops cleanly before its store is packed.
"""

from __future__ import annotations

import io
import tarfile
import tempfile
import time
import zlib
from pathlib import Path
from typing import NamedTuple

from tests.support import raw_remoting
from tests.support.peer import Peer
from tests.support.raw_remoting import RawClient

ARCHIVE = Path(__file__).with_name("store-4.9.7.tar.xz")
FILE_SIZE = 65536
FILE_SIZES = {
    "mappedFileSizeCommitLog": FILE_SIZE,
    "mappedFileSizeConsumeQueue": 2000,
    "maxHashSlotNum": 100,
    "maxIndexNum": 400,
    "messageDelayLevel": "1s 2s 3s",
}
SEND_BATCH_MESSAGE = 320
END_TRANSACTION = 37
BORN_TIMESTAMP = 1_795_251_442_181
DELIVERY_SECONDS = 5


class Sent(NamedTuple):
    """One send. Tags, keys and the like are in the properties, where clients put them."""

    topic: str
    queue_id: int
    body: bytes
    properties: dict[str, str]
    flag: int = 0
    sys_flag: int = 0


def _sends() -> list[Sent]:
    sends = [
        Sent("plain", 0, b"hello", {}),
        Sent("plain", 1, b"", {"TAGS": "TagA"}),
        Sent("plain", 0, bytes(range(256)), {"TAGS": "TagA", "KEYS": "red green"}, flag=77),
        Sent("plain", 2, "中文 🎉".encode(), {"TAGS": "标签", "KEYS": "键", "名": "值 🎉"}),
        Sent("plain", 0, b"long", {"long": "v" * 30_000}),
        Sent("plain", 3, zlib.compress(b"c" * 5000), {"TAGS": "zip"}, sys_flag=0x301),
        Sent("plain", 3, b"hash", {"KEYS": "AaAa"}),
        Sent("plain", 3, b"hash", {"KEYS": "BBBB"}),
        Sent("plain", 3, b"zero", {"KEYS": "polygenelubricants"}),
        Sent("plain", 1, b"delayed", {"DELAY": "2", "TAGS": "later"}),
        Sent(
            "plain", 1, b"half", {"TRAN_MSG": "true", "PGROUP": "g", "UNIQ_KEY": "H1"}, sys_flag=4
        ),
    ]
    # Several files of each kind.
    sends += [
        Sent("many", n % 3, b"%d" % n + b"." * 300, {"TAGS": f"T{n % 5}", "UNIQ_KEY": f"{n:032X}"})
        for n in range(450)
    ]
    return sends


SENT = _sends()
BATCH = [
    Sent("batch", 0, b"b%d" % n, {"TAGS": "inner", "KEYS": f"batch{n}", "WAIT": "true"}, flag=n)
    for n in range(5)
]


def text(properties: dict[str, str]) -> str:
    return "\x02".join(f"{key}\x01{value}" for key, value in properties.items())


def batch_body() -> bytes:
    items = []
    for sent in BATCH:
        properties = text(sent.properties).encode()
        size = 4 * 5 + len(sent.body) + 2 + len(properties)
        head = b"".join(v.to_bytes(4, "big") for v in (size, 0, 0, sent.flag, len(sent.body)))
        items.append(head + sent.body + len(properties).to_bytes(2, "big") + properties)
    return b"".join(items)


def fields_of(sent: Sent) -> dict[str, str]:
    return {
        "producerGroup": "golden",
        "topic": sent.topic,
        "defaultTopic": "TBW102",
        "defaultTopicQueueNums": "4",
        "queueId": str(sent.queue_id),
        "sysFlag": str(sent.sys_flag),
        "bornTimestamp": str(BORN_TIMESTAMP),
        "flag": str(sent.flag),
        "properties": text(sent.properties),
        "reconsumeTimes": "0",
        "unitMode": "false",
        "batch": "false",
    }


def send_all(client: RawClient) -> None:
    for sent in SENT:
        answer = client.ask(raw_remoting.SEND_MESSAGE, fields_of(sent), sent.body)
        assert answer.code == raw_remoting.SUCCESS, answer
        if sent.sys_flag == 4:
            _commit(client, answer.fields)
    # A batch has the short header: a is the first field of the long one, and so on.
    fields = fields_of(Sent("batch", 0, b"", {"WAIT": "true"})) | {"batch": "true"}
    short = dict(zip("abcdefghijkm", fields.values(), strict=True))
    answer = client.ask(SEND_BATCH_MESSAGE, short, batch_body())
    assert answer.code == raw_remoting.SUCCESS, answer


def _commit(client: RawClient, fields: dict[str, str]) -> None:
    client.ask(
        END_TRANSACTION,
        {
            "producerGroup": "g",
            "tranStateTableOffset": fields["queueOffset"],
            "commitLogOffset": str(int(fields["msgId"][16:], 16)),
            "commitOrRollback": "8",
            "fromTransactionCheck": "false",
            "msgId": "H1",
            "transactionId": "H1",
        },
    )


def pack(store: Path, archive_path: Path) -> None:
    with tarfile.open(archive_path, "w:xz") as archive:
        for path in sorted(store.rglob("*")):
            if path.is_file() and path.name != "lock":
                data = path.read_bytes()
                info = tarfile.TarInfo(str(path.relative_to(store)))
                info.size = len(data)
                info.mtime = int(path.stat().st_mtime)
                archive.addfile(info, io.BytesIO(data))


def main() -> None:
    with tempfile.TemporaryDirectory() as directory:
        peer = Peer("4.9.7", Path(directory), **FILE_SIZES)
        peer.ends_in_order = True
        with peer:
            with RawClient(peer.port) as client:
                send_all(client)
            # The real broker delivers by its own clock.
            time.sleep(DELIVERY_SECONDS)
        pack(peer.store, ARCHIVE)


if __name__ == "__main__":
    main()
