"""Frames that begin and end transactions, valid and malformed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.support import send_frames

if TYPE_CHECKING:
    from random import Random

    from broker_core.transaction.half import Half

END_TRANSACTION = 37
NOT_KNOWN, COMMIT, ROLLBACK = 0, 8, 12
GROUP = "group"
PLAIN = f"TRAN_MSG\x01true\x02PGROUP\x01{GROUP}\x02"


def half(topic: str, queue_id: int, properties: str, body: bytes, opaque: int) -> bytes:
    """Return the frame of a half message."""
    fields = send_frames.fields_of(topic, queue_id, properties, sys_flag=4)
    return send_frames.send(fields, body, opaque)


def any_half(rng: Random, topics: tuple[str, ...], opaque: int) -> bytes:
    """Return a half message; one in three is malformed."""
    fields: dict[str, Any] = send_frames.fields_of(
        rng.choice(topics), rng.randrange(4), f"{PLAIN}UNIQ_KEY\x01U{opaque}\x02", sys_flag=4
    )
    client = rng.choice(send_frames.CLIENTS)
    match rng.randrange(18):
        case 0:
            fields["i"] = PLAIN + send_frames.properties_of(rng)
        case 1:
            fields["i"] = send_frames.properties_of(rng) + "\x02" + PLAIN
        case 2:
            fields["i"] = rng.choice(
                ("TRAN_MSG\x01true", "TRAN_MSG\x01TRUE\x02PGROUP\x01größe", "TRAN_MSG\x01no\x02")
            )
        case 3:
            wait = rng.choice(("true", "false", ""))
            fields["i"] += f"WAIT\x01{wait}\x02KEYS\x01k1 größe\x02TAGS\x01TagA"
        case 4:
            name = rng.choice(
                ("REAL_TOPIC", "REAL_QID", "DELAY", "CLUSTER", "PGROUP", "TIMER_DELAY_MS")
            )
            fields["i"] += f"{name}\x01{rng.choice(('1', '07', 'Orders'))}\x02"
        case 5:
            fields["i"] += (
                f"CHECK_IMMUNITY_TIME_IN_SECONDS\x01{rng.choice(('9', '09', 'x', ''))}\x02"
            )
        case 6:
            fields["i"] += "".join(f"p{number}\x01v\x02" for number in range(rng.choice((20, 40))))
        case 7:
            fields[rng.choice("defghj")] = rng.choice(send_frames.NUMBERS)
        case 8:
            fields["i"] += "x\x01" + "y" * rng.choice((32_600, 32_700))
        case 9:
            # All have the same content, so only their offset distinguishes them.
            fields["i"] = PLAIN
            return send_frames.send(fields, b"same", opaque, client=client)
        case 10:
            fields["i"] += "".join(
                f"{rng.choice(('PGROUP', 'own', 'TAGS'))}\x01{each}\x02" for each in ("a", "b")
            )
        case _:
            pass
    flag = send_frames.ONEWAY if rng.random() < 0.05 else 0
    return send_frames.send(fields, send_frames.body_of(rng), opaque, flag=flag, client=client)


def end_fields(queue_offset: int, commit_log_offset: int, outcome: int = COMMIT) -> dict[str, Any]:
    """Return the fields of an end-transaction request as the Java client writes them."""
    return {
        "producerGroup": GROUP,
        "tranStateTableOffset": str(queue_offset),
        "commitLogOffset": str(commit_log_offset),
        "commitOrRollback": str(outcome),
        "fromTransactionCheck": "false",
        "msgId": "AC11000100002A9F0000000000000001",
    }


def end(
    fields: dict[str, Any], opaque: int, *, flag: int = send_frames.ONEWAY, client: str = "JAVA"
) -> bytes:
    return send_frames.send(fields, b"", opaque, code=END_TRANSACTION, flag=flag, client=client)


def any_end(rng: Random, halves: list[Half], opaque: int) -> bytes:
    """Return a request that ends one of these transactions; one in two is malformed."""
    one = rng.choice(halves)
    outcome = rng.choice((COMMIT, COMMIT, COMMIT, ROLLBACK, NOT_KNOWN))
    fields = end_fields(one.queue_offset, one.commit_log_offset, outcome)
    client = rng.choice(send_frames.CLIENTS)
    flag = send_frames.ONEWAY
    match rng.randrange(16):
        case 0:
            other = rng.choice(halves)
            fields["commitLogOffset"] = str(other.commit_log_offset + rng.choice((0, 0, 1, -1)))
        case 1:
            fields["producerGroup"] = rng.choice(("", "größe", "grou", "group2", 'g"'))
        case 2:
            fields[rng.choice(list(fields))] = rng.choice(send_frames.NUMBERS)
        case 3:
            fields.pop(rng.choice(list(fields)))
        case 4:
            flag = rng.choice((0, 0, 4))
        case 5:
            fields[rng.choice(("x", "transactionId", "größe"))] = rng.choice(send_frames.WORDS)
        case 6:
            fields["commitLogOffset"] = str(rng.choice((0, 1 << 19, 1 << 40)))
        case _:
            pass
    return end(fields, opaque, flag=flag, client=client)
