"""Which topics' bodies the lake stores, and masking in them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from analytics.errors import LakeError
from analytics.lake.bodies import BodyRules
from tests.analytics.lake.lakes import Lake
from tests.analytics.store_builder import StoreBuilder

if TYPE_CHECKING:
    from pathlib import Path


def kept(tmp_path: Path, rules: str, *sent: tuple[str, bytes]) -> list[bytes | None]:
    """Return the bodies stored in the lake, of those sent to topics."""
    file = tmp_path / "bodies.toml"
    file.write_text(rules)
    builder = StoreBuilder(tmp_path / "store")
    for topic, body in sent:
        builder.put(topic, body=body)
    builder.write()
    lake = Lake(tmp_path / "lake", builder.root, rules=BodyRules.read(file))
    lake.take_all()
    return [row[1] for row in lake.rows("commit_log_offset", "body")]


def test_only_bodies_of_topics_with_a_rule_are_kept(tmp_path: Path) -> None:
    found = kept(tmp_path, "[bodies.orders]", ("orders", b"\xff\x00one"), ("bills", b"two"))

    assert found == [b"\xff\x00one", None]


def test_a_pattern_is_masked_anywhere(tmp_path: Path) -> None:
    rules = '[bodies.orders]\npatterns = ["[0-9]{16}", "Kim"]'

    found = kept(tmp_path, rules, ("orders", "card 1234567812345678 of Kim ☂".encode()))

    assert found == ["card *** of *** ☂".encode()]


def test_a_pattern_is_masked_in_any_escaping(tmp_path: Path) -> None:
    rules = '[bodies.orders]\npatterns = ["[+]49[0-9]+", "^Kim$"]'
    bodies = [
        rb'{"phone": "\u002B49170", "name": "K\u0069m", "of": "Kim B"}',
        rb'{"inner": "{\"phone\": \"\\u002B49170\"}"}',
        b"phone=%2B49170",
        b"<phone>&#43;49170</phone>",
    ]

    found = kept(tmp_path, rules, *(("orders", body) for body in bodies))

    assert found == [
        rb'{"phone": "***", "name": "***", "of": "Kim B"}',
        rb'{"inner": "{\"phone\": \"***\"}"}',
        b"phone=***",
        b"<phone>***</phone>",
    ]


def test_a_field_is_masked_at_any_depth(tmp_path: Path) -> None:
    body = json.dumps({"id": 7, "password": "p", "of": [{"password": {"a": 1}}]}).encode()

    (found,) = kept(tmp_path, '[bodies.orders]\nfields = ["password"]', ("orders", body))

    assert found is not None
    assert json.loads(found) == {"id": 7, "password": "***", "of": [{"password": "***"}]}


@pytest.mark.parametrize(
    ("rule", "body"),
    [
        ('patterns = ["x"]', b"\xff\xfe"),
        ('fields = ["x"]', b"no json"),
        ('fields = ["x"]', b"[" * 100_000),
    ],
)
def test_an_unmaskable_body_is_left_out(tmp_path: Path, rule: str, body: bytes) -> None:
    assert kept(tmp_path, f"[bodies.orders]\n{rule}", ("orders", body)) == [None]


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("bodies = 3", "can only contain tables"),
        ("[other]", "can only contain tables"),
        ("[bodies.orders]\nmask = true", "only have patterns, fields, columns"),
        ('[bodies.orders]\npatterns = "x"', "a list of strings"),
        ('[bodies.orders]\npatterns = ["("]', "isn't a valid regular expression"),
        ('[bodies."a b"]', "doesn't name a valid topic"),
        ("[bodies", "can't be read"),
    ],
)
def test_invalid_rules_are_rejected(tmp_path: Path, text: str, sentence: str) -> None:
    file = tmp_path / "bodies.toml"
    file.write_text(text)

    with pytest.raises(LakeError, match=sentence):
        BodyRules.read(file)


def test_missing_rules_are_rejected(tmp_path: Path) -> None:
    with pytest.raises(LakeError, match="No such file"):
        BodyRules.read(tmp_path / "bodies.toml")
