"""Any change to a request with a fresh signature makes the signature invalid."""

from __future__ import annotations

import pytest
from hypothesis import assume, given, strategies as st

from broker_core.access.account import build_account
from broker_core.access.freshness import Freshness, NotFreshError
from broker_core.protocol.command import RemotingCommand
from broker_core.protocol.fresh_signature import FreshSigner
from broker_core.protocol.signature import Credentials
from tests.support.clock import ManualClock

SECRET = "12345678"
ACCOUNT = build_account({"accessKey": "console", "secretKey": SECRET})
TEXT = st.text(st.characters(), max_size=12)
FIELDS = st.dictionaries(TEXT, TEXT, max_size=5)
CODES = st.integers(-(2**31), 2**31 - 1)
OURS = ("trebuchetNonce", "trebuchetTime", "trebuchetSignature")


def signed(code: int, fields: dict[str, str], body: bytes) -> tuple[RemotingCommand, Freshness]:
    clock = ManualClock()
    request = RemotingCommand.request(code, dict(fields), body)
    FreshSigner(Credentials("console", SECRET), clock.now_ms).sign(request)
    return request, Freshness(clock)


@given(CODES, FIELDS, st.binary(max_size=20))
def test_unchanged_values_pass(code: int, fields: dict[str, str], body: bytes) -> None:
    request, freshness = signed(code, fields, body)

    freshness.check(request, ACCOUNT)


@given(CODES, FIELDS, st.binary(max_size=20), st.data())
def test_any_change_is_rejected(
    code: int, fields: dict[str, str], body: bytes, data: st.DataObject
) -> None:
    request, freshness = signed(code, fields, body)
    before = dict(request.ext_fields)
    kind = data.draw(st.sampled_from(["code", "body", "value", "name", "more", "less", "moved"]))
    key = data.draw(st.sampled_from(sorted(set(before) - {"Signature", "trebuchetSignature"})))
    match kind:
        case "code":
            request.code = data.draw(CODES.filter(lambda other: other != code))
        case "body":
            request.body = data.draw(st.binary(max_size=20).filter(lambda other: other != body))
        case "value":
            request.ext_fields[key] = data.draw(TEXT.filter(lambda other: other != before[key]))
        case "name":
            name = data.draw(TEXT.filter(lambda other: other not in before))
            request.ext_fields[name] = request.ext_fields.pop(key)
        case "more":
            request.ext_fields[data.draw(TEXT.filter(lambda other: other not in before))] = ""
        case "less":
            del request.ext_fields[key]
        case _:
            # The same values joined, as RocketMQ's signature covers them.
            keys = sorted(set(before) - {"Signature", "trebuchetSignature"})
            other = data.draw(st.sampled_from(keys))
            assume(other != key and before[other])
            request.ext_fields[key] += before[other][:1]
            request.ext_fields[other] = before[other][1:]

    with pytest.raises(NotFreshError):
        freshness.check(request, ACCOUNT)
    assert len(freshness) == 0


@given(FIELDS, st.sampled_from(OURS), st.integers(0, 63), st.characters(codec="ascii"))
def test_each_character_of_our_text_counts(
    fields: dict[str, str], key: str, place: int, character: str
) -> None:
    request, freshness = signed(1, fields, b"")
    text = request.ext_fields[key]
    place %= len(text)
    assume(text[place] != character)
    request.ext_fields[key] = text[:place] + character + text[place + 1 :]

    with pytest.raises(NotFreshError):
        freshness.check(request, ACCOUNT)
