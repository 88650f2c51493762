"""RegisterBrokerBody: the topics that a broker registers with a name server.

As JSON, or with `compressed=true` as a zlib stream of

    int32 length, DataVersion as JSON
    int32 count, count times: int32 length, "name readQueueNums writeQueueNums perm SINGLE_TAG"
    int32 length, the filter servers as a JSON list

whose topics lack `order` and `topicSysFlag`. 5.x appends further fields, which are skipped.

Source: common/protocol/body/RegisterBrokerBody.java (4.9.7).
"""

from __future__ import annotations

import struct
import zlib
from typing import TYPE_CHECKING

import msgspec

from broker_core.message.data_version import DataVersion
from broker_core.message.topic_config import TopicConfig
from broker_core.protocol import java_json
from broker_core.steps import run_to_end

if TYPE_CHECKING:
    from collections.abc import Generator

INFLATED_BYTES_MAX = 16 * 1024 * 1024
TOPICS_PER_STEP = 256
CRC_MASK = 0x7FFFFFFF
_INT32 = struct.Struct(">i")


WITH_DELETED_TOPICS = "withDeletedTopics"
"""In GET_ALL_TOPIC_CONFIG: a Trebuchet slave also requests the deleted topics."""
DELETED_TOPICS = "deletedTopics"
"""In the answer: JSON of deleted topics and the log offset where each one's messages end."""


class TopicConfigSerializeWrapper(msgspec.Struct, rename="camel", kw_only=True):
    """A table of topics with its version (also the answer to GET_ALL_TOPIC_CONFIG)."""

    data_version: DataVersion = msgspec.field(default_factory=DataVersion)
    topic_config_table: dict[str, TopicConfig] = {}

    def encode(self) -> bytes:
        return msgspec.json.encode(self)

    @classmethod
    def decode(cls, body: bytes) -> TopicConfigSerializeWrapper:
        """Decode a topic table.

        Raises:
            ValueError: the body isn't a topic table.
        """
        return java_json.decode_as(body, cls)


class RegisterBrokerBody(msgspec.Struct, rename="camel", kw_only=True):
    """The body of REGISTER_BROKER."""

    filter_server_list: list[str] = []
    topic_config_serialize_wrapper: TopicConfigSerializeWrapper = msgspec.field(
        default_factory=TopicConfigSerializeWrapper
    )

    def encode(self, *, is_compressed: bool = False) -> bytes:
        if not is_compressed:
            return msgspec.json.encode(self)
        wrapper = self.topic_config_serialize_wrapper
        topics = wrapper.topic_config_table.values()
        texts = [
            _length_and_text(msgspec.json.encode(wrapper.data_version)),
            _INT32.pack(len(topics)),
            *(_length_and_text(_topic_text(one)) for one in topics),
            _length_and_text(msgspec.json.encode(self.filter_server_list)),
        ]
        return zlib.compress(b"".join(texts), zlib.Z_BEST_COMPRESSION)

    @classmethod
    def decode(cls, body: bytes, *, is_compressed: bool = False) -> RegisterBrokerBody:
        """Decode a registration.

        Raises:
            ValueError: the body isn't a registration, or inflates to more than
                INFLATED_BYTES_MAX.
        """
        if not is_compressed:
            return java_json.decode_request(body, cls)
        return run_to_end(inflated_steps(inflate(body)))


class _Table(msgspec.Struct, rename="camel"):
    """A TopicConfigSerializeWrapper whose topics aren't decoded yet."""

    data_version: DataVersion = msgspec.field(default_factory=DataVersion)
    topic_config_table: dict[str, msgspec.Raw] = {}


class _Outline(msgspec.Struct, rename="camel"):
    """A RegisterBrokerBody whose topics aren't decoded yet."""

    filter_server_list: list[str] = []
    topic_config_serialize_wrapper: _Table = msgspec.field(default_factory=_Table)


_outline_of = msgspec.json.Decoder(_Outline, strict=False).decode
_topic_of = msgspec.json.Decoder(TopicConfig, strict=False).decode


def decode_steps(body: bytes) -> Generator[None, None, RegisterBrokerBody]:
    """Decode a long registration in plain JSON, in steps.

    Raises:
        ValueError: the body isn't a registration.
    """
    outline = _outline_of(body)
    wrapper = outline.topic_config_serialize_wrapper
    table: dict[str, TopicConfig] = {}
    for number, (name, text) in enumerate(wrapper.topic_config_table.items()):
        if not number % TOPICS_PER_STEP:
            yield
        table[name] = _topic_of(text)
    return RegisterBrokerBody(
        filter_server_list=outline.filter_server_list,
        topic_config_serialize_wrapper=TopicConfigSerializeWrapper(
            data_version=wrapper.data_version, topic_config_table=table
        ),
    )


def body_crc32(body: bytes) -> int:
    """Return the checksum for REGISTER_BROKER's header, where 0 means unchecked."""
    return zlib.crc32(body) & CRC_MASK


def inflate(body: bytes) -> bytes:
    """Inflate a compressed registration. Any thread.

    Raises:
        ValueError: the body is damaged, or inflates to more than INFLATED_BYTES_MAX.
    """
    inflater = zlib.decompressobj()
    try:
        data = inflater.decompress(body, INFLATED_BYTES_MAX)
    except zlib.error as error:
        raise ValueError(f"the compressed registration is damaged: {error}") from error
    if inflater.unconsumed_tail or not inflater.eof:
        raise ValueError(
            f"the compressed registration is cut off or inflates to more than"
            f" {INFLATED_BYTES_MAX} bytes"
        )
    return data


def inflated_steps(data: bytes) -> Generator[None, None, RegisterBrokerBody]:
    """Decode an inflated registration in steps.

    Raises:
        ValueError: the bytes aren't a registration.
    """
    try:
        return (yield from _read_inflated(data))
    except struct.error as error:
        raise ValueError(f"the compressed registration is damaged: {error}") from error


def _read_inflated(data: bytes) -> Generator[None, None, RegisterBrokerBody]:
    version_text, at = _text(data, 0)
    (count,) = _INT32.unpack_from(data, at)
    at += _INT32.size
    table: dict[str, TopicConfig] = {}
    for number in range(count):
        if not number % TOPICS_PER_STEP:
            yield
        text, at = _text(data, at)
        topic_config = _topic_config(str(text, "utf-8"))
        table[topic_config.topic_name] = topic_config
    filter_servers, at = _text(data, at)
    return RegisterBrokerBody(
        filter_server_list=msgspec.json.decode(filter_servers, type=list[str]),
        topic_config_serialize_wrapper=TopicConfigSerializeWrapper(
            data_version=java_json.decode_request(version_text, DataVersion),
            topic_config_table=table,
        ),
    )


def _text(data: bytes, at: int) -> tuple[bytes, int]:
    (length,) = _INT32.unpack_from(data, at)
    at += _INT32.size
    if length < 0 or at + length > len(data):
        raise ValueError("a length in the compressed registration points outside of it")
    return data[at : at + length], at + length


def _length_and_text(text: bytes) -> bytes:
    return _INT32.pack(len(text)) + text


def _topic_text(config: TopicConfig) -> bytes:
    return (
        f"{config.topic_name} {config.read_queue_nums} {config.write_queue_nums} {config.perm} "
        f"{config.topic_filter_type}"
    ).encode()


def _topic_config(text: str) -> TopicConfig:
    # 5.x appends the attributes as another word.
    words = text.split(" ")
    if len(words) < 5:
        raise ValueError(f"{text[:100]!r} is not a topic of a compressed registration")
    return TopicConfig(
        topic_name=words[0],
        read_queue_nums=int(words[1]),
        write_queue_nums=int(words[2]),
        perm=int(words[3]),
        topic_filter_type=words[4],
    )
