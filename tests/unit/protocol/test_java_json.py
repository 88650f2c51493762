from __future__ import annotations

from itertools import pairwise

import msgspec
import pytest

from broker_core.protocol import java_json
from broker_core.protocol.java_json import ObjectKey, decode, decode_as, encode, encode_pretty

MQ = '{"brokerName":"b","queueId":0,"topic":"T"}'


@pytest.mark.parametrize(
    ("text", "value"),
    [
        # Printed by fastjson 1.2.69 (rocketmq-common:4.9.8).
        ('{"offsetTable":{"T@g":{0:7,1:8}}}', {"offsetTable": {"T@g": {"0": 7, "1": 8}}}),
        ('{"offsetTable":{1:5,2:0}}', {"offsetTable": {"1": 5, "2": 0}}),
        (
            '{"offsetTable":{' + MQ + ':{"lastUpdateTimestamp":0,"maxOffset":5,"minOffset":0}}}',
            {"offsetTable": {MQ: {"lastUpdateTimestamp": 0, "maxOffset": 5, "minOffset": 0}}},
        ),
        (
            '{"consumerTable":{"cid":{' + MQ + ':3}},"messageQueueTable":{}}',
            {"consumerTable": {"cid": {MQ: 3}}, "messageQueueTable": {}},
        ),
        # The strict notation, which Java also reads.
        ('{"offsetTable":{"T@g":{"0":7}}}', {"offsetTable": {"T@g": {"0": 7}}}),
        # Pretty-printed file, spaces in a key, several keys, negative numbers.
        ('{\n\t"a":{0:1, -1:2\n\t}\n}', {"a": {"0": 1, "-1": 2}}),
        ('{{ "queueId" : 0 , "topic" : "a b" } : 1}', {'{"queueId":0,"topic":"a b"}': 1}),
        # Text in strings is not a key.
        (r'{1:"{2:3,4:5","a\",6:":{7:8}}', {"1": "{2:3,4:5", 'a",6:': {"7": 8}}),
        ("{1:[95,87,14]}", {"1": [95, 87, 14]}),
        ("[1,2]", [1, 2]),
    ],
)
def test_both_dialects_are_read_the_same(text: str, value: object) -> None:
    assert decode(text) == value
    assert decode(text.encode()) == value


def test_a_reference_becomes_its_target() -> None:
    text = '{"list":[{"topic":"T"},{"$ref":"$.list[0]"}],"m":{"a":{"$ref":"$.list[1]"}}}'

    assert decode(text) == {"list": [{"topic": "T"}, {"topic": "T"}], "m": {"a": {"topic": "T"}}}


@pytest.mark.parametrize(
    "text",
    [
        '{"a":{"$ref":"$"}}',
        '{"a":{"$ref":".."}}',
        '{"a":{"$ref":"$.a"}}',
        '{"a":{"b":{"$ref":"$.a"}}}',
        '{"a":{"$ref":"$.nowhere"}}',
        '{"a":{"$ref":"$.b[7]"},"b":[]}',
        '{"a":{"$ref":"$[x"}}',
        '{"a":{"$ref":1}}',
        '{"a":{"x":{"$ref":"$.b"}},"b":{"y":{"$ref":"$.a"}}}',
    ],
)
def test_a_cyclic_or_dangling_reference_is_rejected(text: str) -> None:
    with pytest.raises(ValueError, match="reference"):
        decode(text)


def reference(path: str) -> str:
    return f'{{"$ref":"{path}"}}'


def test_repeated_references_are_rejected_before_they_are_resolved() -> None:
    # Each list references the previous one a hundred times: together they expand to 10^14 values.
    lists = ['"a":[1,2]']
    for before, after in pairwise("abcdefgh"):
        lists.append(f'"{after}":[{",".join([reference("$." + before)] * 100)}]')

    with pytest.raises(ValueError, match="repeat more than 100000 values"):
        decode("{" + ",".join(lists) + "}")


def test_too_deeply_nested_references_are_rejected() -> None:
    links = [f'"a{n}":[{reference(f"$.a{n - 1}")}]' for n in range(1, 5_000)]

    with pytest.raises(ValueError, match="deeper than 32 levels"):
        decode('{"a0":[1],' + ",".join(links) + "}")


def test_values_may_be_repeated_as_often_as_in_a_large_clients_heartbeat() -> None:
    text = '{"a":{"topic":"T"},"list":[' + ",".join([reference("$.a")] * 10_000) + "]}"

    assert decode(text)["list"] == [{"topic": "T"}] * 10_000


@pytest.mark.parametrize(
    "text", ["", "{", "{1:}", "{1}", "{{}", "{{1}2}", '{"a":1', "\x00", "{1:'x'}", '{"a":NaN}']
)
def test_neither_of_the_two_is_a_value_error(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        decode(text)


@pytest.mark.parametrize("text", ["{" * 50_000, "{1:" * 50_000, "{+,  " * 20_000, ',{"' * 30_000])
def test_hostile_text_is_rejected_quickly(text: str) -> None:
    # A reader that backtracks would need minutes here.
    with pytest.raises(ValueError, match=r"."):
        decode(text)


def test_nesting_is_bounded() -> None:
    def nested(levels: int) -> str:
        return "[" * levels + "]" * levels

    assert decode(nested(java_json.DEPTH_MAX)) is not None
    for levels in (java_json.DEPTH_MAX + 1, 5_000):
        with pytest.raises(ValueError, match="deeper"):
            decode(nested(levels))


class Point(msgspec.Struct, rename="camel"):
    queue_id: int
    table: dict[int, str] = {}


@pytest.mark.parametrize(
    "text", ['{"queueId":"3","x":null,"table":{"1":"a"}}', '{"queueId":3,"table":{1:"a"}}']
)
def test_a_structure_can_be_read_from_both_dialects(text: str) -> None:
    assert decode_as(text, Point) == Point(3, {1: "a"})


@pytest.mark.parametrize("text", ['{"queueId":"x"}', "{}", "[]", "{1:2}"])
def test_a_missing_structure_is_a_value_error(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        decode_as(text, Point)


def test_raw_keys_are_written_in_fastjsons_form() -> None:
    key = java_json.message_queue_key("T", "b", 0)

    assert key == MQ
    assert encode({"offsetTable": {key: 3}}) == b'{"offsetTable":{' + MQ.encode() + b":3}}"
    assert encode({"offsetTable": {"T@g": {1: 8, 0: 7}}}) == b'{"offsetTable":{"T@g":{0:7,1:8}}}'
    assert encode({"a": {0: "x", 10: {}, 2: []}}) == b'{"a":{0:"x",2:[],10:{}}}'


def test_members_are_sorted_without_nulls_or_html_escapes() -> None:
    assert encode({"b": 1.0, "a": True, "c": None, "d": "</订\x01\n"}) == (
        '{"a":true,"b":1.0,"d":"</订\\u0001\\n"}'.encode()
    )


def test_the_pretty_form_equals_the_configuration_files() -> None:
    # consumerOffset.json and topics.json of a 4.9.8 broker.
    assert encode_pretty({"offsetTable": {"T@g": {0: 25, 1: 24}, "U@g": {}}}) == (
        b'{\n\t"offsetTable":{\n\t\t"T@g":{0:25,1:24\n\t\t},\n\t\t"U@g":{}\n\t}\n}'
    )
    assert encode_pretty({"b": {"perm": 6}, "a": [95, 87], "c": [{"x": 1}], "d": []}) == (
        b'{\n\t"a":[95,87],\n\t"b":{\n\t\t"perm":6\n\t},'
        b'\n\t"c":[\n\t\t{\n\t\t\t"x":1\n\t\t}\n\t],\n\t"d":[]\n}'
    )


@pytest.mark.parametrize("write", [encode, encode_pretty])
def test_written_data_is_read_back(write: object) -> None:
    value = {"a": {"1": 2}, "b": [{}, [], "x,1:{2:3", -0.5, True], MQ: {"c": 1}}

    text = (encode if write is encode else encode_pretty)(
        {"a": {1: 2}, "b": value["b"], ObjectKey(MQ): {"c": 1}}
    )

    assert decode(text) == value


def test_a_key_of_another_kind_is_a_programming_error() -> None:
    with pytest.raises(TypeError, match="float"):
        encode({"a": {1.5: "x"}})
