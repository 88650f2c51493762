"""Requests for sending by hand: end a transaction, deliver a message to one client."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker_core.message.ids import parse_offset_msg_id
from broker_core.message.sys_flag import TRANSACTION_COMMIT_TYPE, TRANSACTION_ROLLBACK_TYPE
from broker_core.protocol.codes import RequestCode, ResponseCode
from console.gateway.errors import RequestFailedError
from console.gateway.outgoing import PRODUCER_GROUP, Delivered, Half, Halves, Timer, Timers
from console.gateway.requests.call import body_of, call, reading

if TYPE_CHECKING:
    from console.gateway.outgoing import Sent
    from console.gateway.requests.call import Ask


async def end_transaction(ask: Ask, address: str, half: Sent, *, is_commit: bool) -> None:
    place = parse_offset_msg_id(half.offset_msg_id)
    fields = {
        "producerGroup": PRODUCER_GROUP,
        "tranStateTableOffset": half.queue_offset,
        "commitLogOffset": place.commit_log_offset if place is not None else -1,
        "commitOrRollback": TRANSACTION_COMMIT_TYPE if is_commit else TRANSACTION_ROLLBACK_TYPE,
        "fromTransactionCheck": False,
        "msgId": half.uniq_key,
        "transactionId": half.transaction_id,
    }
    await call(ask, address, RequestCode.END_TRANSACTION, fields)


async def half_messages(
    ask: Ask, address: str, broker_name: str, from_offset: int
) -> Halves | None:
    """Return undecided transactions; None: a RocketMQ broker, which doesn't list them."""
    code = RequestCode.GET_HALF_MESSAGES
    try:
        answer = await call(ask, address, code, {"fromOffset": from_offset})
    except RequestFailedError as error:
        if error.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
            return None
        raise
    with reading(address, code):
        found = body_of(answer)
        rest = int(found["next"])
        return Halves(
            tuple(
                Half(
                    broker_name,
                    int(each["queueOffset"]),
                    int(each["commitLogOffset"]),
                    str(each["topic"]),
                    int(each["queueId"]),
                    str(each["group"]),
                    str(each["msgId"]),
                    str(each["keys"]),
                    str(each["tags"]),
                    int(each["bodySize"]),
                    int(each["bornTimestamp"]),
                    str(each["bornHost"]),
                    int(each["ageMs"]),
                    int(each["checkTimes"]),
                )
                for each in found["halves"]
            ),
            int(found["total"]),
            rest if rest >= 0 else None,
        )


async def timers(ask: Ask, address: str, key: str) -> Timers | None:
    """Return the next timer messages, or those with a key.

    None: the broker is RocketMQ, which doesn't list them, or a Trebuchet broker that is starting.
    """
    code = RequestCode.GET_TIMER_MESSAGES
    try:
        answer = await call(ask, address, code, {"key": key} if key else {})
    except RequestFailedError as error:
        if error.code in (
            ResponseCode.REQUEST_CODE_NOT_SUPPORTED,
            ResponseCode.SERVICE_NOT_AVAILABLE,
        ):
            return None
        raise
    with reading(address, code):
        found = body_of(answer)
        next_due_ms = int(found["nextDueMs"])
        return Timers(
            tuple(
                Timer(
                    str(each["topic"]),
                    int(each["queueId"]),
                    int(each["dueMs"]),
                    str(each["msgId"]),
                    str(each["keys"]),
                    str(each["tags"]),
                    int(each["bodySize"]),
                    int(each["storeTimestamp"]),
                )
                for each in found["messages"]
            ),
            int(found["total"]),
            next_due_ms if next_due_ms >= 0 else None,
        )


async def decide(ask: Ask, address: str, half: Half, *, is_commit: bool) -> None:
    fields = {
        "producerGroup": half.group,
        "tranStateTableOffset": half.queue_offset,
        "commitLogOffset": half.commit_log_offset,
        "commitOrRollback": TRANSACTION_COMMIT_TYPE if is_commit else TRANSACTION_ROLLBACK_TYPE,
        "fromTransactionCheck": False,
        "msgId": half.uniq_key,
        "transactionId": half.uniq_key,
    }
    await call(ask, address, RequestCode.END_TRANSACTION, fields)


async def check_half(ask: Ask, address: str, half: Half) -> None:
    fields = {"queueOffset": half.queue_offset}
    await call(ask, address, RequestCode.CHECK_HALF_MESSAGE, fields)


async def consume_directly(
    ask: Ask, address: str, group: str, client_id: str, offset_msg_id: str, timeout_s: float
) -> Delivered:
    """Deliver a stored message to a client and return its result."""
    code = RequestCode.CONSUME_MESSAGE_DIRECTLY
    fields = {"consumerGroup": group, "clientId": client_id, "msgId": offset_msg_id}
    answer = await call(ask, address, code, fields, timeout_s=timeout_s)
    with reading(address, code):
        found = body_of(answer)
        spent = found.get("spentTimeMills")
        return Delivered(
            str(found.get("consumeResult") or ""),
            str(found.get("remark") or ""),
            int(spent) if spent is not None else None,
        )
