"""ListenerAdapter: an extension's transaction listener, called before producers are asked."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING

from broker_core.errors import AbortProcessError
from broker_core.extensions.failures import ExtensionFailedError
from broker_core.extensions.transaction_listener import HalfMessage, Resolution
from broker_core.message.names import PROPERTY_PRODUCER_GROUP
from broker_core.transaction.half import Outcome, check_times, real_place

if TYPE_CHECKING:
    from collections.abc import Callable

    from broker_core.extensions.failures import Failures
    from broker_core.extensions.loading import ActiveExtension
    from broker_core.extensions.transaction_listener import TransactionListener
    from broker_core.message.message import MessageExt
    from broker_core.transaction.check import CheckedHalf
    from broker_core.transaction.half import Half

    Ask = Callable[[CheckedHalf], bool]

OUTCOMES = {
    Resolution.PARK: None,
    Resolution.COMMIT: Outcome.COMMITTED,
    Resolution.ROLL_BACK: Outcome.ROLLED_BACK,
}


class ListenerAdapter:
    """Calls the listener, and the producer if the listener wants it. Event loop only."""

    def __init__(
        self, loaded: ActiveExtension[TransactionListener], failures: Failures, ask: Ask
    ) -> None:
        self._label, self._listener = loaded
        self._failures = failures
        self._ask = ask

    def ask(self, half: CheckedHalf) -> bool:
        """Let the listener ask a producer; return whether a producer was asked."""
        answers: list[bool] = []

        def ask_producer() -> bool:
            answers.append(self._ask(half))
            return answers[-1]

        message = half_message(half.message, half.commit_log_offset)
        try:
            return bool(
                self._failures.call(self._label, self._listener.send_check, message, ask_producer)
            )
        except ExtensionFailedError:
            pass
        except AbortProcessError as error:
            self._failures.raised(self._label, "send_check", error)
        return answers[-1] if answers else self._ask(half)

    def resolve_discard(self, half: Half, message: MessageExt) -> Outcome | None:
        """Return the outcome of a transaction checked too often; None parks it."""
        described = half_message(message, half.commit_log_offset)
        resolve: Callable[[HalfMessage], object] = self._listener.resolve_discard
        try:
            resolution = self._failures.call(self._label, resolve, described)
        except ExtensionFailedError:
            return None
        except AbortProcessError as error:
            self._failures.raised(self._label, "resolve_discard", error)
            return None
        if not isinstance(resolution, Resolution):
            self._failures.note(self._label, f"returned {resolution!r} from resolve_discard")
            return None
        return OUTCOMES[resolution]


def half_message(message: MessageExt, commit_log_offset: int) -> HalfMessage:
    """Return a half message in the form for listeners."""
    topic, queue_id = real_place(message) or ("", -1)
    return HalfMessage(
        producer_group=message.properties.get(PROPERTY_PRODUCER_GROUP, ""),
        topic=topic,
        queue_id=queue_id,
        uniq_key=message.uniq_key or "",
        properties=MappingProxyType(message.properties),
        body=message.body,
        born_host=message.born_host,
        born_timestamp=message.born_timestamp,
        check_times=check_times(message.properties),
        commit_log_offset=commit_log_offset,
    )
