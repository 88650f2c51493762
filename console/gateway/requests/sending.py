"""Requests of a person who sends: the end of a transaction, a message for one client."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker_core.message.ids import parse_offset_msg_id
from broker_core.message.sys_flag import TRANSACTION_COMMIT_TYPE, TRANSACTION_ROLLBACK_TYPE
from broker_core.protocol.codes import RequestCode
from console.gateway.outgoing import PRODUCER_GROUP, Delivered
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


async def consume_directly(
    ask: Ask, address: str, group: str, client_id: str, offset_msg_id: str, timeout_s: float
) -> Delivered:
    """Hand a stored message to a client, and return what it made of it."""
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
