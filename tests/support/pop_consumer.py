"""A consumer that leases messages over remoting, as a 5.x client does."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, NamedTuple

from broker_core.clock import SystemClock
from broker_core.formats.record import decode_all
from broker_core.message.names import PROPERTY_POP_CK
from broker_core.protocol.codes import RequestCode, ResponseCode

if TYPE_CHECKING:
    from tests.support.raw_remoting import Answer, RawClient

CLOCK = SystemClock()
BROKER_NAME = "broker-a"
PAUSE_S = 0.05


class Held(NamedTuple):
    """A popped message with the receipt that acknowledges it."""

    body: str
    queue_id: int
    offset: int
    receipt: str
    reconsume_times: int


class Popper:
    """One consumer of a group and a topic with one queue. Blocks."""

    def __init__(
        self, client: RawClient, group: str, topic: str, broker_name: str = BROKER_NAME
    ) -> None:
        self._client = client
        self._names = {"consumerGroup": group, "topic": topic}
        self._broker_name = broker_name

    def pop(self, count: int = 32, invisible_ms: int = 60_000, **more: str) -> list[Held]:
        """Return the messages of one pop, which waits only with `pollTime`."""
        fields = {
            **self._names,
            "queueId": "-1",
            "maxMsgNums": str(count),
            "invisibleTime": str(invisible_ms),
            "pollTime": "0",
            "bornTime": str(CLOCK.now_ms()),
            "initMode": "0",
            "order": "false",
            **more,
        }
        answer = self._client.ask(RequestCode.POP_MESSAGE, fields)
        if answer.code == ResponseCode.POLLING_TIMEOUT:
            return []
        assert answer.code == ResponseCode.SUCCESS, answer
        return self._held(answer)

    def acknowledge(self, held: Held) -> None:
        answer = self._client.ask(RequestCode.ACK_MESSAGE, self._named(held))
        assert answer.code == ResponseCode.SUCCESS, answer

    def change(self, held: Held, invisible_ms: int) -> Held:
        """Return the message with its new receipt."""
        fields = {**self._named(held), "invisibleTime": str(invisible_ms)}
        answer = self._client.ask(RequestCode.CHANGE_MESSAGE_INVISIBLETIME, fields)
        assert answer.code == ResponseCode.SUCCESS, answer
        _, _, _, revive_queue, kind, broker_name, queue_id, offset = held.receipt.split(" ")
        receipt = (
            f"{held.offset} {answer.fields['popTime']} {answer.fields['invisibleTime']} "
            f"{revive_queue} {kind} {broker_name} {queue_id} {offset}"
        )
        return held._replace(receipt=receipt)

    def drain(self, seconds: float, enough: int) -> list[Held]:
        """Pop and acknowledge until `enough` messages arrived or the time is up."""
        found: list[Held] = []
        deadline = time.monotonic() + seconds
        while len(found) < enough and time.monotonic() < deadline:
            popped = self.pop()
            for held in popped:
                self.acknowledge(held)
            found += popped
            if not popped:
                time.sleep(PAUSE_S)
        return found

    def _named(self, held: Held) -> dict[str, str]:
        return {
            **self._names,
            "queueId": str(held.queue_id),
            "offset": str(held.offset),
            "extraInfo": held.receipt,
        }

    def _held(self, answer: Answer) -> list[Held]:
        """Build the receipts as clients do: from the header, or from the message's property."""
        starts = {}
        for place in answer.fields["startOffsetInfo"].split(";"):
            kind, queue_id, start = place.split(" ")
            starts[kind, int(queue_id)] = start
        found = []
        for message in decode_all(answer.body):
            receipt = message.properties.get(PROPERTY_POP_CK)
            if receipt is None:
                receipt = " ".join(
                    (
                        starts["0", message.queue_id],
                        answer.fields["popTime"],
                        answer.fields["invisibleTime"],
                        answer.fields["reviveQid"],
                        "0",
                        self._broker_name,
                        str(message.queue_id),
                        str(message.queue_offset),
                    )
                )
            found.append(
                Held(
                    message.body.decode(),
                    message.queue_id,
                    message.queue_offset,
                    receipt,
                    message.reconsume_times,
                )
            )
        return found
