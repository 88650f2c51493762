"""Write hosts-4.9.7.tar.xz: records with IPv4 and IPv6 hosts, written by a real broker 4.9.7.

    python -m tests.golden.make_hosts_4_9_7

The broker runs twice on one store: with brokerIP1=127.0.0.1, then with brokerIP1=::1. Each time
producers of both address types send one of everything that the broker stores differently, and
two messages at the end of a file: the first just fits, and the second is a byte too long.
"""

from __future__ import annotations

import tempfile
import time
import zlib
from pathlib import Path

from broker_core.formats import record
from broker_core.message.ids import host_bytes
from tests.golden.make_store_4_9_7 import (
    DELIVERY_SECONDS,
    END_TRANSACTION,
    FILE_SIZE,
    FILE_SIZES,
    SEND_BATCH_MESSAGE,
    Sent,
    batch_body,
    fields_of,
    pack,
)
from tests.support import raw_remoting
from tests.support.peer import Peer
from tests.support.raw_remoting import RawClient

ARCHIVE = Path(__file__).with_name("hosts-4.9.7.tar.xz")
STORE_HOSTS = ("127.0.0.1", "::1")
BORN_HOSTS = ("127.0.0.1", "::1")
CLUSTER = "CLUSTER\x01DefaultCluster"
COMMIT, ROLLBACK = "8", "12"
COMPRESSED = zlib.compress(b"c" * 3000)


def sends(name: str) -> list[Sent]:
    """Return a producer's messages, made distinct by the name."""
    half = {"TRAN_MSG": "true", "PGROUP": "g"}
    return [
        Sent("hosts", 0, f"{name} plain".encode(), {"TAGS": "TagA", "KEYS": f"{name} both"}),
        Sent("hosts", 1, "名 é 🎉".encode(), {"TAGS": "标签", "名": "值 🎉"}, flag=-1),
        Sent("hosts", 2, COMPRESSED, {"UNIQ_KEY": f"{name}Z"}, sys_flag=0x301),
        Sent("hosts", 2, b"an lz4 frame, says the flag", {}, sys_flag=0x101),
        Sent("hosts", 3, b"many tags", {"TAGS": "a || b"}, flag=0x7FFFFFFF, sys_flag=2),
        Sent("hosts", 3, b"", {}),
        Sent("hosts", 1, f"{name} delayed".encode(), {"DELAY": "1", "KEYS": f"{name}D"}),
        Sent("hosts", 0, f"{name} yes".encode(), half | {"UNIQ_KEY": f"{name}Y"}, sys_flag=4),
        Sent("hosts", 0, f"{name} no".encode(), half | {"UNIQ_KEY": f"{name}N"}, sys_flag=4),
        Sent("t" * 127, 0, b"a long name", {"long": "v" * 3000, "KEYS": f"{name}L"}),
    ]


def send_all(client: RawClient, number: int, born_host: str, store_host: str) -> None:
    """Send everything from one producer, with no other sender meanwhile."""
    name = f"{len(store_host)}-{number}"
    for sent in sends(name):
        answer = _send(client, sent)
        if sent.sys_flag == 4:
            end = _end_fields(sent, answer["queueOffset"], _place(answer))
            client.ask(END_TRANSACTION, end)
    fields, body = _batch_request()
    answered = client.ask(SEND_BATCH_MESSAGE, fields, body)
    assert answered.code == raw_remoting.SUCCESS, answered
    where = Sent("hosts", 0, b"where", {})
    place = _place(_send(client, where))
    fixed = record.fixed_fields(host_bytes(born_host, 0), host_bytes(store_host, 0))
    overhead = fixed.size + 1 + len(where.topic) + 2 + len(CLUSTER)
    room = FILE_SIZE - (place + overhead + len(where.body)) % FILE_SIZE
    # With 8 bytes left it is the last message of this file, with 7 the first of the next.
    _send(client, Sent("hosts", 0, b"f" * (room - overhead - 8 + number), {}))


def _send(client: RawClient, sent: Sent) -> dict[str, str]:
    answer = client.ask(raw_remoting.SEND_MESSAGE, fields_of(sent), sent.body)
    assert answer.code == raw_remoting.SUCCESS, answer
    return answer.fields


def _place(answer: dict[str, str]) -> int:
    return int(answer["msgId"][-16:], 16)


def _outcome_of(sent: Sent) -> str:
    return COMMIT if sent.body.endswith(b" yes") else ROLLBACK


def _end_fields(sent: Sent, queue_offset: str, commit_log_offset: int) -> dict[str, str]:
    uniq_key = sent.properties["UNIQ_KEY"]
    return {
        "producerGroup": "g",
        "tranStateTableOffset": queue_offset,
        "commitLogOffset": str(commit_log_offset),
        "commitOrRollback": _outcome_of(sent),
        "fromTransactionCheck": "false",
        "msgId": uniq_key,
        "transactionId": uniq_key,
    }


def _batch_request() -> tuple[dict[str, str], bytes]:
    """Return header fields and body of a batch of five."""
    long = fields_of(Sent("hosts", 3, b"", {"WAIT": "true", "PGROUP": "b"})) | {"batch": "true"}
    return dict(zip("abcdefghijkm", long.values(), strict=True)), batch_body()


def main() -> None:
    with tempfile.TemporaryDirectory() as directory:
        store = Path(directory, "store")
        for store_host in STORE_HOSTS:
            place = Path(directory, store_host.replace(":", "_"))
            keys = {"storePathRootDir": store, "storePathCommitLog": store / "commitlog"}
            with Peer("4.9.7", place, brokerIP1=store_host, **FILE_SIZES, **keys) as peer:
                peer.ends_in_order = True
                for number, born_host in enumerate(BORN_HOSTS):
                    with RawClient(peer.port, host=born_host) as client:
                        send_all(client, number, born_host, store_host)
                # The real broker delivers by its own clock.
                time.sleep(DELIVERY_SECONDS)
        pack(store, ARCHIVE)


if __name__ == "__main__":
    main()
