from __future__ import annotations

import json

import pytest

from broker_core.errors import FrameError
from broker_core.protocol import json_header
from broker_core.protocol.command import decode
from broker_core.protocol.json_header import EXT_FIELDS_MAX, Header


def test_the_header_of_a_java_client_is_read() -> None:
    # Printed by org.apache.rocketmq:rocketmq-remoting:4.9.8.
    data = (
        b'{"code":11,"extFields":{"queueId":"0","maxMsgNums":"32","sysFlag":"2",'
        b'"suspendTimeoutMillis":"15000","commitOffset":"0","topic":"T","queueOffset":"0",'
        b'"subVersion":"1","consumerGroup":"g"},"flag":0,"language":"JAVA","opaque":0,'
        b'"serializeTypeCurrentRPC":"JSON","version":409}'
    )
    assert len(data) == 0x111

    command = decode(0, data, b"")

    assert (command.code, command.flag, command.opaque, command.version) == (11, 0, 0, 409)
    assert command.language == "JAVA"
    assert command.remark is None
    assert command.ext_fields["suspendTimeoutMillis"] == "15000"
    assert len(command.ext_fields) == 9


@pytest.mark.parametrize(
    ("data", "ext_fields"),
    [
        (
            b'{"code":1,"extFields":{"a":1,"b":true,"c":1.5,"d":null}}',
            {"a": "1", "b": "true", "c": "1.5"},
        ),
        (b'{"code":1,"extFields":{"a":{"b":[1]}}}', {"a": '{"b":[1]}'}),
        (b'{"code":1,"extFields":null}', {}),
        (b'{"code":1,"extFields":{}}', {}),
        (b'{"code":1}', {}),
    ],
)
def test_ext_values_of_any_kind_become_text(data: bytes, ext_fields: dict[str, str]) -> None:
    assert decode(0, data, b"").ext_fields == ext_fields


@pytest.mark.parametrize(
    ("data", "language"),
    [
        (b'{"language":9}', "GO"),
        (b'{"language":99}', "OTHER"),
        (b'{"language":null}', "OTHER"),
        (b'{"language":"KOTLIN"}', "KOTLIN"),
        (b"{}", "OTHER"),
    ],
)
def test_a_language_is_a_name_a_number_or_unknown(data: bytes, language: str) -> None:
    assert decode(0, data, b"").language == language


def test_quoted_numbers_null_remarks_and_unknown_keys_are_accepted() -> None:
    command = decode(0, b'{"code":"34","remark":null,"x":[{}],"opaque":"-1"}', b"")

    assert (command.code, command.remark, command.opaque) == (34, None, -1)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"[]",
        b'"code"',
        b"{",
        b'{"code":1',
        b'{"code":2147483648}',
        b'{"code":1.5}',
        b'{"code":[]}',
        b'{"code":"1e9"}',
        b'{"extFields":[]}',
        b'{"remark":"\xff"}',
        rb'{"remark":"\ud800"}',
        b'{"x":' + b"[" * 30_000,
    ],
)
def test_an_invalid_header_is_a_frame_error(data: bytes) -> None:
    with pytest.raises(FrameError):
        decode(0, data, b"")


@pytest.mark.parametrize("value", ['"v"', "1"])
def test_one_ext_field_too_many_is_rejected(value: str) -> None:
    def header(count: int) -> bytes:
        return b'{"extFields":{%s}}' % ",".join(f'"k{n}":{value}' for n in range(count)).encode()

    assert len(decode(0, header(EXT_FIELDS_MAX), b"").ext_fields) == EXT_FIELDS_MAX
    with pytest.raises(FrameError, match="ext fields"):
        decode(0, header(EXT_FIELDS_MAX + 1), b"")


def test_a_header_cannot_fill_fields_that_are_not_transmitted() -> None:
    command = decode(0, b'{"-body":"aGk=","-type":7,"-parts":["x"],"body":"x"}', b"real")

    assert command.body == b"real"
    assert command.parts is None
    assert command.serialize_type == 0


@pytest.mark.parametrize(
    "header",
    [
        Header(0, 1, 7, 407, "PYTHON"),
        Header(0, 1, 7, 407, "PYTHON", None, {"k": "v"}),
        Header(17, 1, 7, 407, "PYTHON", 'no "topic"\n\x01 订单', {"k\x02": "\\v"}),
        Header(34, 0, -1, 317, "GO", None, {}),
    ],
)
def test_written_data_is_read_back(header: Header) -> None:
    data = json_header.encode(header)

    assert decode(0, data, b"").ext_fields == header.ext_fields
    written = json.loads(data)
    assert written.pop("serializeTypeCurrentRPC") == "JSON"
    assert written.pop("extFields", {}) == header.ext_fields
    assert written.pop("remark", None) == header.remark
    assert written == {
        "code": header.code,
        "flag": header.flag,
        "language": header.language,
        "opaque": header.opaque,
        "version": header.version,
    }
