r"""A message's properties text, key \x01 value \x02 ..., has only the sender's values."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from broker_core.message.properties import PROPERTIES_BYTES_MAX
from broker_core.protocol.codes import RequestCode, ResponseCode
from broker_core.protocol.headers.send_message import LONG_NAMES
from tests.support.client import messages
from tests.support.send_frames import batch_item

if TYPE_CHECKING:
    from tests.support.client import Client

HEADER = {"a": "pg", "b": "T", "c": "TBW102", "d": "4", "e": "0", "f": "0", "g": "1", "h": "0"}
SMUGGLED = "x\x02MSG_BACK\x01true\x02"
OF_THE_BROKER = {"CLUSTER", "UNIQ_KEY", "MIN_OFFSET", "MAX_OFFSET"}


@pytest.mark.parametrize("name", ["a", "b", "c"])
async def test_no_other_field_becomes_properties(client: Client, name: str) -> None:
    """Groups and topics are names, and their separators can't inject properties."""
    fields: dict[str, Any] = {**HEADER, name: SMUGGLED, "i": "KEYS\x01k"}

    answer = await client.ask(RequestCode.SEND_MESSAGE_V2, b"x", **fields)

    if answer.code == ResponseCode.SUCCESS:
        (stored,) = messages(await client.pull("T"))
        assert set(stored.properties) - OF_THE_BROKER == {"KEYS"}
    else:
        assert answer.remark


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("KEYS\x01k\x02\x02TAGS\x01A", {"KEYS": "k", "TAGS": "A"}),
        ("a\x01\x02KEYS\x01k", {"KEYS": "k"}),
        ("key\x01", {}),
    ],
)
async def test_an_odd_text_is_read_the_same_by_all_readers(
    client: Client, text: str, expected: dict[str, str]
) -> None:
    """Broker and consumer parse it in the same way, so nothing can hide in between."""
    answer = await client.ask(
        RequestCode.SEND_MESSAGE_V2, b"x", **dict[str, Any]({**HEADER, "i": text})
    )

    assert answer.code == ResponseCode.SUCCESS
    (stored,) = messages(await client.pull("T"))
    found = {key: value for key, value in stored.properties.items() if key not in OF_THE_BROKER}
    assert found == expected


REFUSED = {
    "colour\x01r\0d": "the property 'colour' contains U+0000, which the broker can't store. ",
    "KEYS\x01k\x01mine\x01x": "the property 'KEYS' contains U+0001, which separates names from ",
    "TAGS\x01A\x02no separator": "its properties hold 'no separator' without a value; a property ",
    "\x01value": "a property has no name",
    # Of half and delayed messages, which take another code path.
    "TRAN_MSG\x01true\x02PGROUP\x01p\x02a\x01b\x01c": "the property 'a' contains U+0001, ",
    "DELAY\x013\x02a\x01b\x02c": "its properties hold 'c' without a value; a property contains ",
    "DELAY\x013\x02a\x01\0": "the property 'a' contains U+0000, ",
}


@pytest.mark.parametrize(("text", "reason"), REFUSED.items())
async def test_ambiguous_properties_are_rejected_with_the_reason(
    client: Client, text: str, reason: str
) -> None:
    fields: dict[str, Any] = {**HEADER, "i": text}
    long = {LONG_NAMES[name]: value for name, value in fields.items()}
    answers = [
        await client.ask(RequestCode.SEND_MESSAGE_V2, b"x", **fields),
        await client.ask(RequestCode.SEND_MESSAGE, b"x", **long),
    ]

    for answer in answers:
        assert answer.code == ResponseCode.MESSAGE_ILLEGAL
        assert (answer.remark or "").startswith(f"the message is illegal: {reason}")
    assert messages(await client.pull("T")) == []


@pytest.mark.parametrize(("text", "reason"), list(REFUSED.items())[:4])
async def test_a_batch_with_one_such_message_is_rejected_with_the_reason(
    client: Client, text: str, reason: str
) -> None:
    fields: dict[str, Any] = {**HEADER, "m": "true"}
    one_of_two = batch_item(b"x", b"a\x01b") + batch_item(b"y", text.encode())
    answers = [
        await client.ask(
            RequestCode.SEND_BATCH_MESSAGE, batch_item(b"x", b""), **{**fields, "i": text}
        ),
        await client.ask(RequestCode.SEND_BATCH_MESSAGE, one_of_two, **{**fields, "i": "c\x01d"}),
        await client.ask(RequestCode.SEND_MESSAGE_V2, one_of_two, **fields),
    ]

    for answer in answers:
        assert answer.code == ResponseCode.MESSAGE_ILLEGAL
        assert (answer.remark or "").startswith(f"the message is illegal: {reason}")
    assert messages(await client.pull("T")) == []


@pytest.mark.parametrize("count", [1, 8_000])
async def test_a_text_above_32_kib_of_any_characters_is_rejected(
    client: Client, count: int
) -> None:
    # One long value, or thousands of pairs.
    length = PROPERTIES_BYTES_MAX // count + 1
    text = "\x02".join(f"{number:x}\x01{'v' * length}" for number in range(count))
    assert len(text) > PROPERTIES_BYTES_MAX
    fields: dict[str, Any] = {**HEADER, "i": text}

    answer = await client.ask(RequestCode.SEND_MESSAGE_V2, b"x", **fields)

    assert answer.code == ResponseCode.MESSAGE_ILLEGAL
    assert answer.remark
    assert messages(await client.pull("T")) == []
