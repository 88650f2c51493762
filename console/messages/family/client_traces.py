r"""Trace records that RocketMQ clients send to RMQ_SYS_TRACE_TOPIC.

Records are separated by \x02, their fields by \x01::

    Pub             time region group topic id tags keys store-host body-length cost type
                    [offset-id] [success] [client-host]
    SubBefore       time region group request id retries [keys]
    SubAfter        request id cost success [keys] [return-type] [time] [group]
    EndTransaction  time region group topic id tags keys store-host type transaction state
                    [from-check]
    Recall          time region group topic id [success]

Records of other kinds are kept as text. Source: client/trace/TraceDataEncoder.java (4.9.7, 5.3.3).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

RECORD_END, FIELD_END = "\x02", "\x01"
PUB, SUB_BEFORE, SUB_AFTER = "Pub", "SubBefore", "SubAfter"
END_TRANSACTION, RECALL = "EndTransaction", "Recall"
MESSAGE_TYPES = ("normal", "half", "commit", "delay", "order")
RETURN_TYPES = ("SUCCESS", "TIME_OUT", "EXCEPTION", "RETURNNULL", "FAILED")
NULL = "null"


@dataclass(frozen=True, slots=True)
class ClientRecord:
    """A trace record; `kind` is "" if only `raw` is known. `at_ms` uses the client's clock."""

    kind: str
    raw: str
    at_ms: int | None = None
    cost_ms: int | None = None
    region: str = ""
    group: str = ""
    topic: str = ""
    message_id: str = ""
    tags: str = ""
    keys: str = ""
    store_host: str = ""
    client_host: str = ""
    body_bytes: int | None = None
    message_type: str = ""
    offset_msg_id: str = ""
    request_id: str = ""
    retry_times: int | None = None
    is_success: bool | None = None
    return_type: str = ""
    transaction_id: str = ""
    transaction_state: str = ""
    is_from_check: bool | None = None


def records_of(body: bytes) -> list[ClientRecord]:
    """Return a trace message's records; records of unknown kinds and lengths keep only `raw`."""
    text = body.decode(errors="replace")
    return [record_of(each) for each in text.split(RECORD_END) if each]


def record_of(raw: str) -> ClientRecord:
    # Java's split drops empty fields at the end, so they may be missing.
    kind, *fields = raw.split(FIELD_END)
    reader = READERS.get(kind)
    if reader is None:
        return ClientRecord("", raw)
    try:
        return replace(reader(fields), kind=kind, raw=raw)
    except ValueError:
        return ClientRecord("", raw)


def consumptions(
    records: Iterable[ClientRecord],
) -> list[tuple[ClientRecord | None, ClientRecord | None]]:
    """Return the start and end of each consumption, either of which may be missing."""
    pairs: dict[tuple[str, str], list[ClientRecord | None]] = {}
    for record in records:
        if record.kind in {SUB_BEFORE, SUB_AFTER}:
            pair = pairs.setdefault((record.request_id, record.message_id), [None, None])
            pair[record.kind == SUB_AFTER] = record
    return [(before, after) for before, after in pairs.values()]


def _of_producer(kind: str, fields: list[str]) -> ClientRecord:
    """Return the fields that both kinds of producer records start with."""
    return ClientRecord(
        kind,
        "",
        at_ms=_number(fields[0]),
        region=_text(fields[1]),
        group=_text(fields[2]),
        topic=_text(fields[3]),
        message_id=_text(fields[4]),
        tags=_text(fields[5]),
        keys=_text(fields[6]),
        store_host=_text(fields[7]),
    )


def _pub(fields: list[str]) -> ClientRecord:
    _need(fields, 11)
    tail = fields[11:]
    offset_msg_id = tail[0] if len(tail) >= 2 else ""
    success = tail[1] if len(tail) >= 2 else tail[0] if tail else ""
    return replace(
        _of_producer(PUB, fields),
        body_bytes=_number(fields[8]),
        cost_ms=_number(fields[9]),
        message_type=_named(MESSAGE_TYPES, fields[10]),
        offset_msg_id=_text(offset_msg_id),
        is_success=_boolean(success),
        client_host=_text(tail[2]) if len(tail) >= 3 else "",
    )


def _sub_before(fields: list[str]) -> ClientRecord:
    _need(fields, 6)
    return ClientRecord(
        SUB_BEFORE,
        "",
        at_ms=_number(fields[0]),
        region=_text(fields[1]),
        group=_text(fields[2]),
        request_id=fields[3],
        message_id=_text(fields[4]),
        retry_times=_number(fields[5]),
        keys=_text(_at(fields, 6)),
        client_host=_text(_at(fields, 7)),
    )


def _sub_after(fields: list[str]) -> ClientRecord:
    _need(fields, 4)
    return_type, at_ms = _at(fields, 5), _at(fields, 6)
    return ClientRecord(
        SUB_AFTER,
        "",
        request_id=fields[0],
        message_id=_text(fields[1]),
        cost_ms=_number(fields[2]),
        is_success=_boolean(fields[3]),
        keys=_text(_at(fields, 4)),
        return_type=_named(RETURN_TYPES, return_type) if return_type else "",
        at_ms=_number(at_ms) if at_ms else None,
        group=_text(_at(fields, 7)),
    )


def _end_transaction(fields: list[str]) -> ClientRecord:
    _need(fields, 11)
    return replace(
        _of_producer(END_TRANSACTION, fields),
        message_type=_named(MESSAGE_TYPES, fields[8]),
        transaction_id=_text(fields[9]),
        transaction_state=_text(fields[10]),
        is_from_check=_boolean(_at(fields, 11)),
    )


def _recall(fields: list[str]) -> ClientRecord:
    _need(fields, 5)
    return ClientRecord(
        RECALL,
        "",
        at_ms=_number(fields[0]),
        region=_text(fields[1]),
        group=_text(fields[2]),
        topic=_text(fields[3]),
        message_id=_text(fields[4]),
        is_success=_boolean(_at(fields, 5)),
    )


READERS: dict[str, Callable[[list[str]], ClientRecord]] = {
    PUB: _pub,
    SUB_BEFORE: _sub_before,
    SUB_AFTER: _sub_after,
    END_TRANSACTION: _end_transaction,
    RECALL: _recall,
}


def _need(fields: list[str], count: int) -> None:
    if len(fields) < count:
        raise ValueError(fields)


def _at(fields: list[str], index: int) -> str:
    return fields[index] if index < len(fields) else ""


def _text(field: str) -> str:
    return "" if field == NULL else field


def _number(field: str) -> int:
    # int() accepts more formats than Java writes.
    if not field.isascii() or not field.removeprefix("-").isdecimal() or len(field) > 19:
        raise ValueError(field)
    return int(field)


def _boolean(field: str) -> bool | None:
    return {"true": True, "false": False}.get(field)


def _named(names: tuple[str, ...], ordinal: str) -> str:
    number = _number(ordinal)
    return names[number] if 0 <= number < len(names) else ordinal
