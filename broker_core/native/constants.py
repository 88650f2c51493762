"""The constants that both twins need, as declarations for the compiled one.

Each value is stated once, in the Python modules imported here. `python -m
broker_core.native.constants` writes them to `generated.pxi`, which `constants.pxd` includes, so the
values are constants in C. The file is committed, because the first start compiles while the
packages that these modules need are still being installed; a test compares it with them.
"""

from __future__ import annotations

import re
from pathlib import Path

import msgspec

from broker_core.formats import batch, cq_unit, index_entry, record
from broker_core.grpc_messages import codec, wire_format
from broker_core.http2 import codes as http2_codes, frames
from broker_core.message import ids, names, properties, sys_flag
from broker_core.protocol import binary_header, codes, command, frame, json_header
from broker_core.protocol.headers import fields, pull_message
from broker_core.protocol.headers.send_message import LONG_NAMES
from broker_core.trace import event
from broker_core.trace.filter import STAGES, STEPS

GENERATED = Path(__file__).with_name("generated.pxi")
CODES = (
    codes.RequestCode.SEND_MESSAGE,
    codes.RequestCode.PULL_MESSAGE,
    codes.RequestCode.END_TRANSACTION,
    codes.RequestCode.SEND_MESSAGE_V2,
    codes.RequestCode.SEND_BATCH_MESSAGE,
    codes.RequestCode.LITE_PULL_MESSAGE,
)
# Of unsigned 32-bit fields.
_MAGICS = {
    name: getattr(record, name) & 0xFFFFFFFF for name in ("MESSAGE_MAGIC", "MESSAGE_MAGIC_V2")
}
# Modules and the names of their integers.
_INTEGERS = (
    (record, ("CRC_MASK", "CRC_DIGITS", "FIXED_V4_SIZE", "HEAD_SIZE", "OVERHEAD_V4")),
    (ids, ("HOST_V4_SIZE", "HOST_V6_SIZE")),
    (cq_unit, ("UNIT_SIZE", "FILLER_SIZE")),
    (properties, ("PROPERTIES_BYTES_MAX",)),
    (names, ("GROUP_LENGTH_MAX", "RETRY_TOPIC_LENGTH_MAX")),
    (sys_flag, ("BORNHOST_V6_FLAG", "STOREHOST_V6_FLAG", "HOST_V6_MASK")),
    (sys_flag, ("TRANSACTION_MASK", "TRANSACTION_PREPARED_TYPE", "TRANSACTION_COMMIT_TYPE")),
    (codes, ("ONEWAY_FLAG", "SERIALIZE_ROCKETMQ")),
    (pull_message, ("FLAG_COMMIT_OFFSET", "FLAG_SUSPEND", "FLAG_SUBSCRIPTION")),
    (pull_message, ("MAX_MSG_NUMS_MAX",)),
    (frame, ("FRAME_BYTES_MAX", "LONG_HEADER_BYTES")),
    (fields, ("INT32_MAX",)),
)
SEND_FIELDS = {
    letter: re.sub("([A-Z])", r"_\1", name).upper() for letter, name in LONG_NAMES.items()
}
_FIELD_KINDS = ("STRING", "BYTES", "MESSAGE", "MAP", "INT32", "BOOL", "FLOAT", "PACKED")
_WIRE_TYPES = ("VARINT", "FIXED64", "LENGTH", "START_GROUP", "END_GROUP", "FIXED32")
NUMBERS: dict[str, int] = {
    **_MAGICS,
    **{f"{name.upper()}_POSITION": position for name, position in record.POSITIONS.items()},
    **{name: getattr(module, name) for module, known in _INTEGERS for name in known},
    **{code.name: code.value for code in CODES},
    "PROPERTIES_SIZE_FIELD": record.PROPERTIES_SIZE.size,
    "FIXED_WITHOUT_HOSTS_SIZE": record.FIXED_V4_SIZE - 2 * ids.HOST_V4_SIZE,
    "UNIT_SIZE_POSITION": cq_unit.SIZE_POSITION,
    "UNIT_TAGS_CODE_POSITION": cq_unit.TAGS_CODE_POSITION,
    "INDEX_HEADER_SIZE": index_entry.HEADER_SIZE,
    "INDEX_SLOT_SIZE": index_entry.SLOT_SIZE,
    "INDEX_ENTRY_SIZE": index_entry.ENTRY_SIZE,
    "INDEX_SECONDS_MAX": index_entry.SECONDS_MAX,
    "BATCH_HEAD_SIZE": batch.HEAD_SIZE,
    "BATCH_FLAG_POSITION": batch.FLAG_POSITION,
    "BATCH_BODY_SIZE_POSITION": batch.BODY_SIZE_POSITION,
    "BATCH_MESSAGE_BYTES_MIN": batch.MESSAGE_BYTES_MIN,
    "NAME_VALUE_SEPARATOR": ord(properties.NAME_VALUE_SEPARATOR),
    "PROPERTY_SEPARATOR": ord(properties.PROPERTY_SEPARATOR),
    "KEY_SEPARATOR": ord(names.KEY_SEPARATOR),
    "FRAME_PREFIX_SIZE": command.PREFIX.size,
    # The serializer, then the header's size.
    "FRAME_HEADER_POSITION": command.PREFIX.size // 2,
    "HEADER_OPAQUE_POSITION": binary_header.OPAQUE_POSITION,
    "HEADER_FLAG_POSITION": binary_header.FLAG_POSITION,
    "HEADER_REMARK_POSITION": binary_header.FIXED.size,
    "HEADER_KEY_BYTES_MAX": binary_header.KEY_BYTES_MAX,
    **{f"{name}_LETTER": ord(letter) for letter, name in SEND_FIELDS.items()},
    "SEND_LETTER_MIN": ord(min(SEND_FIELDS)),
    "SEND_LETTER_MAX": ord(max(SEND_FIELDS)),
    "HTTP2_HEAD_BYTES": frames.HEAD_BYTES,
    "HTTP2_DATA": http2_codes.DATA,
    "HTTP2_HEADERS": http2_codes.HEADERS,
    "HTTP2_END_STREAM": http2_codes.END_STREAM,
    "HTTP2_END_HEADERS": http2_codes.END_HEADERS,
    **{f"KIND_{name}": getattr(codec, name) for name in _FIELD_KINDS},
    **{f"WIRE_{name}": getattr(wire_format, name) for name in _WIRE_TYPES},
}
"""Name in the compiled code -> value, at most 32 unsigned bits."""

_HEADER_FIELDS = msgspec.structs.fields(json_header.Header)
_PROPERTIES = (
    "PROPERTY_KEYS",
    "PROPERTY_TAGS",
    "PROPERTY_UNIQ_KEY",
    "PROPERTY_WAIT_STORE_MSG_OK",
    "PROPERTY_REAL_TOPIC",
    "PROPERTY_REAL_QUEUE_ID",
    "PROPERTY_TRANSACTION_PREPARED",
    "PROPERTY_PRODUCER_GROUP",
    "PROPERTY_CHECK_IMMUNITY_TIME_IN_SECONDS",
)
# What stands before a property's value when other properties precede it.
_PAIRS = ("PROPERTY_REAL_TOPIC", "PROPERTY_REAL_QUEUE_ID", "PROPERTY_WAIT_STORE_MSG_OK")
_TRACE = {
    # The beginning of an event, where %(name)s is an attribute's name in JSON.
    "TIME_MS": '"%(time_ms)s":"',
    "AT_US": '","%(at_us)s":"',
    "STAGE": '","%(stage)s":"',
    # After the queue offset.
    "MESSAGE_ID": '","%(message_id)s":"',
    "COMMIT_LOG_OFFSET": '","%(commit_log_offset)s":"',
    "BODY_SIZE": '","%(body_size)s":',
    "TAGS": ',"%(tags)s":"',
    "KEYS": ',"%(keys)s":"',
    "TRACEPARENT": ',"%(traceparent)s":"',
    "UNIQ_KEY": ',"%(uniq_key)s":"',
    "OFFSET_MSG_ID": '","%(offset_msg_id)s":"',
    "STORE_SIZE": ',"%(store_size)s":',
    "PRODUCER_GROUP": ',"%(producer_group)s":"',
    "RECONSUME_TIMES": ',"%(reconsume_times)s":',
    # After the client.
    "LATENCY_US": ',"%(latency_us)s":',
    "TOTAL_US": ',"%(total_us)s":',
    "TOGETHER": ',"%(together)s":',
}


def _trace_texts() -> dict[str, str]:
    """Return the parts of an event's JSON."""
    first, validated, appended, dispatched = STEPS
    json = {f"TRACE_{name}": text % event.JSON_NAMES for name, text in _TRACE.items()}
    for stage in ("stored", "flushed", "replicated", "delivered", "acknowledged"):
        assert stage in STAGES
        json[f"TRACE_{stage.upper()}"] = f'{stage}",'
    json["TRACE_NUMBER"] = event.BEFORE_NUMBER.decode()
    json["TRACE_VALIDATED"] = f',"{event.JSON_NAMES["steps"]}":{{"{first}":0,"{validated}":'
    json["TRACE_APPENDED"] = f',"{appended}":'
    json["TRACE_DISPATCHED"] = f',"{dispatched}":'
    json["TRACE_FROM_MEMORY"] = f',"{event.JSON_NAMES["source"]}":"{event.MEMORY}"}}'
    return json


TEXTS: dict[str, str] = {
    **{name: getattr(names, name) for name in _PROPERTIES},
    "PROPERTY_TRACEPARENT": event.PROPERTY_TRACEPARENT,
    "PROPERTY_REPLAYED": event.PROPERTY_REPLAYED,
    **{
        name.replace("PROPERTY", "PAIR"): properties.PROPERTY_SEPARATOR
        + getattr(names, name)
        + properties.NAME_VALUE_SEPARATOR
        for name in _PAIRS
    },
    **{f"HEADER_{field.name.upper()}": field.encode_name for field in _HEADER_FIELDS},
    # How the header of most clients begins.
    "BEGIN_CODE": f'{{"{_HEADER_FIELDS[0].encode_name}":',
    # How a message's unique key begins, in its properties.
    "BEGIN_UNIQ_KEY": names.PROPERTY_UNIQ_KEY + properties.NAME_VALUE_SEPARATOR,
    **{f"FIELD_{name}": LONG_NAMES[letter] for letter, name in SEND_FIELDS.items()},
    **_trace_texts(),
}
"""Name in the compiled code -> ASCII text. The name with _SIZE is its length."""


def declarations() -> str:
    """Return the constants as Cython source."""
    lines = ["# Generated: python -m broker_core.native.constants"]
    numbers = NUMBERS | {f"{name}_SIZE": len(text) for name, text in TEXTS.items()}
    lines += ["cdef enum:", *(f"    {name} = {value}" for name, value in numbers.items())]
    # Macros: the C compiler knows each text where it is compared or copied.
    lines += ["", "cdef extern from *:", '    """']
    lines += [f"    #define NATIVE_{name} {_c_text(text)}" for name, text in TEXTS.items()]
    lines += ['    """', *(f'    const char* {name} "NATIVE_{name}"' for name in TEXTS)]
    return "\n".join(lines) + "\n"


def _c_text(text: str) -> str:
    """Return a C string literal, as it is written inside a Cython string."""
    plain = (each if each.isalnum() or each == "_" else f"\\\\{ord(each):03o}" for each in text)
    return f'"{"".join(plain)}"'


if __name__ == "__main__":
    GENERATED.write_text(declarations())
