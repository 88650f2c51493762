"""The epoch in which the master of each broker name last registered.

A promotion begins a later epoch. If the old master returns, it registers with an earlier epoch and
is refused, so clients never see two masters. Brokers without epochs, such as RocketMQ's, register
in epoch 0, the first.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from broker_core.errors import RequestRefusedError
from broker_core.protocol.codes import ResponseCode

if TYPE_CHECKING:
    from broker_core.clock import Clock

EPOCH_KEPT_S = 86_400.0
"""Time after the last registration of its master until a name can start over."""
MASTER_TERMS_MAX = 10_000


class MasterTerm(NamedTuple):
    """The epoch of a name's master, its location and the time of its last registration."""

    epoch: int
    address: str
    heard_at: float


class MasterTerms:
    """Event loop only."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._by_name: dict[str, MasterTerm] = {}

    def require(self, broker_name: str, epoch: int, address: str) -> None:
        """Refuse a master whose epoch is earlier than the last registered epoch.

        Raises:
            RequestRefusedError: NO_PERMISSION, with `epoch`.
        """
        known = self._by_name.get(broker_name)
        if known is None or epoch >= known.epoch or self._is_forgotten(known):
            return
        raise RequestRefusedError(
            ResponseCode.NO_PERMISSION,
            f"{known.address} registered as master of {broker_name} in epoch {known.epoch}, but "
            f"{address} is in epoch {epoch}; {address} was replaced and may register as a slave",
            {"epoch": str(known.epoch)},
        )

    def is_newer(self, broker_name: str, epoch: int) -> bool:
        """Return whether an epoch is later than that of the name's master."""
        known = self._by_name.get(broker_name)
        return epoch > (0 if known is None else known.epoch)

    def note(self, broker_name: str, epoch: int, address: str) -> None:
        """Note a master that was registered."""
        if epoch == 0 and broker_name not in self._by_name:
            return
        # Newest last, so that the oldest is dropped when there are too many.
        self._by_name.pop(broker_name, None)
        self._by_name[broker_name] = MasterTerm(epoch, address, self._clock.monotonic())
        if len(self._by_name) > MASTER_TERMS_MAX:
            del self._by_name[next(iter(self._by_name))]

    def _is_forgotten(self, known: MasterTerm) -> bool:
        return known.heard_at <= self._clock.monotonic() - EPOCH_KEPT_S
