"""Receipt handles: the texts with which clients identify messages that they received.

A handle has the fields of a receipt, then the message's offset in the CommitLog. A client can send
any text, so the broker checks each field against its own tables.

Source: common/consumer/ReceiptHandle.java (5.3.3).
Differs: a handle that can't be parsed is INVALID_RECEIPT_HANDLE; RocketMQ answers
INTERNAL_SERVER_ERROR. A handle from ChangeInvisibleDuration has nine fields, RocketMQ's ten.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from broker_core.errors import CallStatusError
from broker_core.grpc_messages.enums import Code
from broker_core.protocol.receipt import Receipt, parse_receipt

if TYPE_CHECKING:
    from typing import Self

FIELDS = len(Receipt._fields) + 1
NO_PLACE = -1


class ReceiptHandle(NamedTuple):
    """A receipt and its message's CommitLog offset, NO_PLACE if the handle has no offset."""

    receipt: Receipt
    commit_log_offset: int

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse a handle that a client sent.

        Raises:
            CallStatusError: INVALID_RECEIPT_HANDLE.
        """
        try:
            receipt = parse_receipt(text)
        except ValueError as error:
            raise CallStatusError(Code.INVALID_RECEIPT_HANDLE, str(error)) from error
        rest = text.split(" ")[FIELDS - 1 : FIELDS]
        place = rest[0] if rest else ""
        is_number = place.isascii() and place.isdecimal() and len(place) <= 18
        return cls(receipt, int(place) if is_number else NO_PLACE)

    @property
    def due_ms(self) -> int:
        """When the lease ends, in milliseconds of wall time."""
        return self.receipt.pop_time_ms + self.receipt.invisible_ms

    def text(self) -> str:
        """Return the text sent to the client."""
        return f"{self.receipt.text()} {self.commit_log_offset}"

    def require_valid(self, now_ms: int, broker_name: str) -> None:
        """Check that a handle is from this broker and hasn't expired.

        Raises:
            CallStatusError: INVALID_RECEIPT_HANDLE.
        """
        if self.receipt.broker_name != broker_name:
            raise CallStatusError(
                Code.INVALID_RECEIPT_HANDLE,
                f"receipt handle belongs to broker {self.receipt.broker_name[:64]!r}, not to "
                "this broker",
            )
        if self.due_ms <= now_ms:
            raise CallStatusError(Code.INVALID_RECEIPT_HANDLE, "receipt handle is expired")
