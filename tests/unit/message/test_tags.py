"""Java's String.hashCode."""

from __future__ import annotations

import pytest

from broker_core.message.tags import index_hash, java_hash, tags_code, unsigned_hash

# Vectors from a real broker's files.
VECTORS = [
    ("TagA", 2598919),
    ("TagB", 2598920),
    ("d", 100),
    ("", 0),
    ("AaAa", 2031744),
    ("BBBB", 2031744),
    ("\U0001f600", 1772899),
    ("polygenelubricants", -2147483648),
]


@pytest.mark.parametrize(("text", "expected"), VECTORS)
def test_the_hash_is_javas(text: str, expected: int) -> None:
    assert java_hash(text) == expected


@pytest.mark.parametrize("length", [255, 256, 257, 1000])
def test_the_hash_of_a_long_text_equals_the_loops(length: int) -> None:
    text = "".join(chr(97 + i % 26) for i in range(length))
    value = 0
    for character in text:
        value = (value * 31 + ord(character)) & 0xFFFFFFFF

    assert unsigned_hash(text) == value


@pytest.mark.parametrize("tags", [None, ""])
def test_a_message_without_tags_has_code_0(tags: str | None) -> None:
    assert tags_code(tags) == 0


@pytest.mark.parametrize(
    "key", ["", "k", "abcd", "abcde", "7F0000010001070DEA4E3E5B2F3B0001", "é" * 9]
)
def test_an_index_keys_hash_is_that_of_topic_and_key(key: str) -> None:
    assert index_hash(unsigned_hash("TopicTest#"), key) == unsigned_hash("TopicTest#" + key)


def test_the_half_messages_index_key_has_the_real_brokers_hash() -> None:
    key = "RMQ_SYS_TRANS_HALF_TOPIC#FD00000000000000000000000000000227D05FFD2B2768EB29C20000"

    assert java_hash(key) == -1897986216
