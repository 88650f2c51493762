"""Random pull frames, valid and malformed."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from tests.support import send_frames
from tests.support.raw_remoting import frame

if TYPE_CHECKING:
    from random import Random

PULL_MESSAGE, LITE_PULL_MESSAGE = 11, 361
COMMIT, SUSPEND, SUBSCRIPTION = 1, 2, 4
SUBSCRIBED, VERSION = "subscribed", 5
"""A connected group and the version of its subscriptions."""
GROUPS = (SUBSCRIBED, "größe", "gone", "")
EXPRESSIONS = ("*", "TagA", "TagA || größe", "", "||", "TagB||注文", " TagA ", "nobody's")


def fields_of(
    topic: str,
    queue_id: int,
    queue_offset: int,
    *,
    group: str = SUBSCRIBED,
    flags: int = COMMIT | SUSPEND,
    expression: str = "",
    most: int = 32,
    commit: int = 0,
) -> dict[str, str]:
    return {
        "consumerGroup": group,
        "topic": topic,
        "queueId": str(queue_id),
        "queueOffset": str(queue_offset),
        "maxMsgNums": str(most),
        "sysFlag": str(flags),
        "commitOffset": str(commit),
        "suspendTimeoutMillis": "15000",
        "subscription": expression,
        "subVersion": str(VERSION),
        "expressionType": "TAG",
    }


def pull(
    fields: dict[str, str],
    opaque: int,
    *,
    code: int = PULL_MESSAGE,
    flag: int = 0,
    client: str = "JAVA",
) -> bytes:
    """Return a frame as a client writes it."""
    return send_frames.send(fields, b"", opaque, code=code, flag=flag, client=client)


def any_pull(rng: Random, topics: tuple[str, ...], opaque: int) -> bytes:
    """Return a pull: most find messages, the others are malformed in some way."""
    code, client = rng.choice((11, 11, 11, 361)), rng.choice(send_frames.CLIENTS)
    fields = fields_of(
        rng.choice(topics),
        rng.randrange(4),
        rng.randrange(rng.choice((3, 20, 200))),
        flags=rng.choice((0, 1, 2, 3, 4, 5, 7)),
        expression=rng.choice(EXPRESSIONS),
        most=rng.choice((1, 2, 31, 32, 33, 1000, 2000, 0, -1)),
        commit=rng.choice((0, 7, -1)),
    )
    if rng.random() < 0.2:
        fields["consumerGroup"] = rng.choice(GROUPS)
    match rng.randrange(17):
        case 0:
            fields.pop(rng.choice(list(fields)))
        case 1:
            numbers = ("queueId", "queueOffset", "maxMsgNums", "sysFlag", "commitOffset")
            name = rng.choice((*numbers, "suspendTimeoutMillis", "subVersion"))
            fields[name] = rng.choice(send_frames.NUMBERS)
        case 2:
            fields["topic"] = rng.choice(("Unknown", "", "SCHEDULE_TOPIC_XXXX", "a/b", "T" * 300))
        case 3:
            fields["expressionType"] = rng.choice(("", "SQL92", "x"))
        case 4:
            fields |= {"lo": "true", "brokerName": rng.choice(send_frames.WORDS), "x": "\0"}
        case 5:
            return pull(fields, opaque, code=code, flag=rng.choice((2, 0, 4)), client=client)
        case 6:
            pair = f',"{rng.choice(list(fields))}":"1"}}'
            header = {"code": code, "opaque": opaque, "flag": 0, "extFields": fields}
            text = json.dumps(header, separators=(",", ":"))
            return frame((text[:-2] + pair + "}").encode(), b"")
        case 7:
            return send_frames.odd_binary(rng, fields, b"", opaque, code=code)
        case _:
            pass
    return pull(fields, opaque, code=code, client=client)


def pull_at_the_end(rng: Random, topic: str, queue_id: int, end: int, opaque: int) -> bytes:
    """Return a pull that most likely waits."""
    fields = fields_of(
        topic,
        queue_id,
        end + rng.choice((0, 0, 0, 0, -1, 1)),
        flags=rng.choice((2, 3, 6, 7, 0)),
        expression=rng.choice(EXPRESSIONS),
        most=rng.choice((1, 2, 32)),
        commit=rng.choice((0, 7, -1)),
    )
    fields["suspendTimeoutMillis"] = rng.choice(("0", "1", "15000", "15000", "70000"))
    if rng.random() < 0.1:
        fields["consumerGroup"] = rng.choice(GROUPS)
    return pull(fields, opaque, client=rng.choice(("JAVA", "GO", send_frames.BINARY)))


def any_request(rng: Random, topics: tuple[str, ...], opaque: int) -> bytes:
    """Return a pull or, in most cases, a send."""
    make = any_pull if rng.random() < 0.4 else send_frames.any_frame
    return make(rng, topics, opaque)
