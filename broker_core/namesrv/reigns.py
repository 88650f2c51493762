"""Reigns: in which epoch the master of each broker name registered last.

A promotion begins a later epoch. The old master that comes back knows only its own, and its
registration is refused: clients must not find two masters by turns. Brokers that know no epochs, as
the original's, register in epoch 0, the first.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from broker_core.errors import RequestRefusedError
from broker_core.protocol.codes import ResponseCode

if TYPE_CHECKING:
    from broker_core.clock import Clock

EPOCH_KEPT_S = 86_400.0
"""So long after the last registration of its master a name can begin anew."""
REIGNS_MAX = 10_000


class Reign(NamedTuple):
    """The epoch of a name's master, where it is, and when it registered last."""

    epoch: int
    address: str
    heard_at: float


class Reigns:
    """Event loop only."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._by_name: dict[str, Reign] = {}

    def require(self, broker_name: str, epoch: int, address: str) -> None:
        """Refuse a master of an earlier epoch than the one that registered before it.

        Raises:
            RequestRefusedError: NO_PERMISSION, with `epoch`.
        """
        known = self._by_name.get(broker_name)
        if known is None or epoch >= known.epoch or self._is_forgotten(known):
            return
        raise RequestRefusedError(
            ResponseCode.NO_PERMISSION,
            f"{known.address} registered as master of {broker_name} in epoch {known.epoch}, and "
            f"{address} comes in epoch {epoch}: it was replaced, and may register as a slave",
            {"epoch": str(known.epoch)},
        )

    def later_than_known(self, broker_name: str, epoch: int) -> bool:
        """Return whether an epoch is later than that of the name's master."""
        known = self._by_name.get(broker_name)
        return epoch > (0 if known is None else known.epoch)

    def note(self, broker_name: str, epoch: int, address: str) -> None:
        """Note a master that was registered."""
        if epoch == 0 and broker_name not in self._by_name:
            return
        # The newest last, so that the oldest goes when there are too many.
        self._by_name.pop(broker_name, None)
        self._by_name[broker_name] = Reign(epoch, address, self._clock.monotonic())
        if len(self._by_name) > REIGNS_MAX:
            del self._by_name[next(iter(self._by_name))]

    def _is_forgotten(self, known: Reign) -> bool:
        return known.heard_at <= self._clock.monotonic() - EPOCH_KEPT_S
