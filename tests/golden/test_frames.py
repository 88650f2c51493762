"""The broker decodes real clients' frames correctly, and answers with codes that they expect."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import pytest

from broker_core.protocol.frame import FrameDecoder
from tests.golden.frames.replay import Replay, is_answered
from tests.support import frame_corpus
from tests.support.broker import running_broker
from tests.support.frame_proxy import Head

if TYPE_CHECKING:
    import random
    from pathlib import Path

    from broker_core.protocol.command import RemotingCommand
    from tests.support.frame_corpus import Recorded

CLIENTS = frame_corpus.clients()
JSON = 0
NOT_SUPPORTED = 3
CUT_BYTES_MAX = 1_500
"""Longer frames are cut only at their first bytes and some others."""
SEND = {0, 1, 2, 10, 11, 12, 13, 14, 16, 17, 26}
PULL = {0, 1, 16, 17, 19, 20, 21, 23, 24, 25, 26, 27, 28}
DONE = {0, 1}
REFERENCE: dict[str, dict[int, set[int]]] = {
    "broker": {
        **dict.fromkeys((10, 310, 320, 324, 325), SEND),
        **dict.fromkeys((11, 361), PULL),
        12: {0, 22},
        14: {0, 22},
        15: {0, 1},
        17: DONE,
        18: {NOT_SUPPORTED},
        21: {0},
        25: {0, 1, 16},
        26: {0},
        28: {0},
        29: {0},
        30: {0},
        31: {0},
        32: {0},
        33: DONE,
        34: {0},
        35: {0},
        36: {0, 1, 16, 26},
        37: {0, 1, 11, 13, 14},
        38: DONE,
        41: {0},
        42: {0},
        43: DONE,
        45: {0},
        46: {0, 1, 23},
        50: {0, 209},
        51: {0, 210},
        # Without access control RocketMQ doesn't answer.
        52: DONE,
        53: {0, 211},
        54: DONE,
        200: DONE,
        201: {0},
        202: {0, 17},
        203: {0, 206},
        204: DONE,
        207: DONE,
        208: {0},
        215: DONE,
        222: {0, 1, 206},
        223: DONE,
        300: {0},
        303: {0, 17},
        305: {0},
        306: {0},
        307: {0, 1, 207},
        309: {0, 1, 207},
        315: DONE,
        316: {0},
        317: {0},
        321: DONE,
        328: {0},
        329: {0},
        351: {0, 17},
        401: DONE,
    },
    "namesrv": {
        100: DONE,
        101: {0, 22},
        102: {0},
        103: DONE,
        104: {0},
        105: {0, 17},
        106: {0},
        205: {0},
        206: {0},
        216: {0},
        224: {0},
        304: {0},
        318: {0, 1, 16},
        319: {0},
        322: {0},
        327: {0},
    },
}
"""The codes that may answer each request; 3 for 5.x requests missing here."""
REFERENCE["broker"][907] = {0}
REFERENCE["vip"] = REFERENCE["broker"] | {11: {NOT_SUPPORTED}, 361: {NOT_SUPPORTED}}


LITE_PULL = 361
SET_MESSAGE_REQUEST_MODE = 401
GET_TOPIC_CONFIG = 351
GET_BROKER_HA_STATUS = 907
UPDATE_CONSUMER_OFFSET = 15
RESET_OFFSET = 222
DIFFERS = {
    LITE_PULL: "5.x's pull, which 4.9.7 does not know",
    SET_MESSAGE_REQUEST_MODE: "5.x's switch between pull and POP",
    GET_TOPIC_CONFIG: "5.x's question, without which its mqadmin cannot go on",
    GET_BROKER_HA_STATUS: "5.x's question, which tells mqadmin of 5.x how replication goes",
    UPDATE_CONSUMER_OFFSET: "refused beyond the queue's end, where it would skip messages",
    RESET_OFFSET: "206 for a group without offsets, so that tools go on to set them",
}
"""Requests that we deliberately answer with another code than the real 4.9.7."""


def decoded(frame: bytes) -> RemotingCommand:
    decoder = FrameDecoder()
    decoder.feed(frame)
    (command,) = decoder.commands()
    decoder.settle()
    assert decoder.kept_bytes == 0
    return command.with_texts()


def test_the_corpus_has_every_client_and_both_forms_of_the_header() -> None:
    frames = frame_corpus.everything()

    assert {"go", "mqadmin-4.9.7", "broker-4.9.7", "java-4.9.7", "java-5.3.3"} <= set(CLIENTS)
    assert {Head(one.frame).type for one in frames} == {0, 1}
    assert {one.answers for one in frames} >= {None, 221, 307, 309, 326}
    assert len({one.code for one in frames}) >= 60


@pytest.mark.parametrize("client", CLIENTS)
def test_each_frame_is_read_correctly(client: str) -> None:
    for one in frame_corpus.read(client):
        meant = Head(one.frame)

        read = decoded(one.frame)

        assert (read.code, read.flag, read.opaque) == (meant.code, meant.flag, meant.opaque)
        assert read.serialize_type == meant.type
        assert read.body == meant.body
        # Java reads an empty value of a binary header as null.
        is_there = (lambda value: True) if meant.type == JSON else bool
        assert read.ext_fields == {k: v for k, v in meant.fields.items() if is_there(v)}


@pytest.mark.parametrize("client", CLIENTS)
def test_each_frame_is_rewritten_unchanged(client: str) -> None:
    for one in frame_corpus.read(client):
        read = decoded(one.frame)

        written = read.encode()

        assert decoded(written) == read
        # Go uses a different order.
        if client != "go" and Head(one.frame).is_read_whole:
            assert same_form(written) == same_form(one.frame)


def same_form(frame: bytes) -> bytes:
    """Return a frame's header and body without fields that Java omits when they are null."""
    return frame[8:].replace(b'"remark":null,', b"").replace(b'"extFields":{},', b"")


@pytest.mark.parametrize("client", CLIENTS)
def test_a_frame_split_anywhere_is_the_same_frame(client: str, rng: random.Random) -> None:
    for one in frame_corpus.read(client):
        frame = one.frame
        whole = decoded(frame)
        cuts = list(range(1, len(frame)))
        if len(frame) > CUT_BYTES_MAX:
            cuts = [*range(1, 64), *rng.sample(range(64, len(frame)), 64)]
        for cut in cuts:
            decoder = FrameDecoder()
            decoder.feed(frame[:cut])
            assert list(decoder.commands()) == []
            decoder.settle()
            decoder.feed(frame[cut:])
            assert [one.with_texts() for one in decoder.commands()] == [whole]


def test_a_stream_in_random_pieces_is_the_same_frames(rng: random.Random) -> None:
    frames = [one.frame for one in frame_corpus.everything()]
    stream = b"".join(frames)
    decoder = FrameDecoder()
    received = []
    at = 0
    while at < len(stream):
        to = at + rng.choice((1, 7, 100, 3_000, 60_000))
        decoder.feed(stream[at:to])
        received += [one.with_texts() for one in decoder.commands()]
        decoder.settle()
        at = to

    assert received == [decoded(frame) for frame in frames]


@pytest.mark.parametrize("client", CLIENTS)
async def test_each_request_gets_an_answer_known_to_its_client(
    client: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    frames = frame_corpus.read(client)
    async with running_broker(tmp_path, enablePropertyFilter="true") as broker:
        ports = {
            "broker": broker.listen_port,
            "vip": broker.listen_port - 2,
            "namesrv": broker.configuration.broker.namesrv_listen_port,
        }
        replay = Replay(ports)
        await replay.send(frames)
    # The broker answers waiting pulls at its end, or closes their connection.
    await replay.close()

    assert [record for record in caplog.records if record.levelno >= logging.ERROR] == []
    unanswered = [frames[place].code for place in replay.unanswered]
    assert [code for code in unanswered if code not in (11, 361)] == []
    strange = [
        describe(frames[place], head)
        for place, head in replay.answers.items()
        if head.code not in REFERENCE[frames[place].to].get(frames[place].code, {NOT_SUPPORTED})
    ]
    assert strange == []
    for place, head in replay.answers.items():
        request = Head(frames[place].frame)
        assert is_answered(request)
        assert (head.opaque, head.type) == (request.opaque, request.type)
    other = [
        describe(frames[place], head)
        for place, head in replay.answers.items()
        if frames[place].real not in (None, head.code) and frames[place].code not in DIFFERS
    ]
    assert other == [], "differs from the real broker's answer"


def describe(one: Recorded, head: Head) -> str:
    return f"{one.to} {one.code}: {head.code}, the real one {one.real}"
