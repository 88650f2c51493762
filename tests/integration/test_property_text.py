r"""The text of a message's properties, key \x01 value \x02 ..., holds what its sender put there."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from broker_core.message.properties import PROPERTIES_BYTES_MAX
from broker_core.protocol.codes import RequestCode, ResponseCode
from tests.support.client import messages

if TYPE_CHECKING:
    from tests.support.client import Client

HEADER = {"a": "pg", "b": "T", "c": "TBW102", "d": "4", "e": "0", "f": "0", "g": "1", "h": "0"}
SMUGGLED = "x\x02MSG_BACK\x01true\x02"
OF_THE_BROKER = {"CLUSTER", "UNIQ_KEY", "MIN_OFFSET", "MAX_OFFSET"}


@pytest.mark.parametrize("name", ["a", "b", "c"])
async def test_no_other_field_becomes_properties(client: Client, name: str) -> None:
    """Groups and topics are names, whose separators no property takes over."""
    fields: dict[str, Any] = {**HEADER, name: SMUGGLED, "i": "KEYS\x01k"}

    answer = await client.ask(RequestCode.SEND_MESSAGE_V2, b"x", **fields)

    if answer.code == ResponseCode.SUCCESS:
        (stored,) = messages(await client.pull("T"))
        assert set(stored.properties) - OF_THE_BROKER == {"KEYS"}
    else:
        assert answer.remark


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("KEYS\x01k\x02\x02\x01\x02TAGS\x01A", {"KEYS": "k", "TAGS": "A"}),
        ("KEYS\x01k\x01mine\x01x", {"KEYS": "k\x01mine\x01x"}),
        ("no separator", {}),
        ("\x01value", {}),
        ("key\x01", {}),
    ],
)
async def test_a_text_that_is_odd_is_read_alike_by_everybody(
    client: Client, text: str, wanted: dict[str, str]
) -> None:
    """What a broker makes of it is what a consumer makes of it: nothing hides in between."""
    answer = await client.ask(
        RequestCode.SEND_MESSAGE_V2, b"x", **dict[str, Any]({**HEADER, "i": text})
    )

    assert answer.code == ResponseCode.SUCCESS
    (stored,) = messages(await client.pull("T"))
    found = {key: value for key, value in stored.properties.items() if key not in OF_THE_BROKER}
    assert found == wanted


@pytest.mark.parametrize("count", [1, 8_000])
async def test_a_text_above_32_kib_is_refused_whatever_it_is_made_of(
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
