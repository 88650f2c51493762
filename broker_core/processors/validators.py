"""Access validators: those of extensions, and plain_acl among them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker_core.errors import AbortProcessError, RequestRefusedError
from broker_core.extensions.failures import ExtensionFailedError
from broker_core.processors.hooked import checked
from broker_core.protocol.codes import ResponseCode

if TYPE_CHECKING:
    from collections.abc import Callable

    from broker_core.access.authorizer import Authorizer
    from broker_core.extensions.access_validator import AccessValidator
    from broker_core.extensions.failures import Failures
    from broker_core.extensions.loading import Loaded
    from broker_core.protocol.command import RemotingCommand

FAILED = "access control failed; see the broker's log"


class AccessValidators:
    """Asks each validator in turn; all have to agree. Event loop only."""

    def __init__(
        self,
        validators: tuple[Loaded[AccessValidator | None], ...],
        plain: Authorizer | None,
        failures: Failures,
    ) -> None:
        self._validators = validators
        self._plain = plain
        self._failures = failures

    def authorize(self, request: RemotingCommand, remote_address: str) -> None:
        """Let a request pass, or not.

        Raises:
            RequestRefusedError: a validator refuses, or fails.
        """
        for label, validator in self._validators:
            if validator is not None:
                self._ask(label, validator, request, remote_address)
            elif self._plain is not None:
                self._plain.authorize(request, remote_address)

    def _ask(
        self, label: str, validator: AccessValidator, request: RemotingCommand, remote_address: str
    ) -> None:
        validate: Callable[[RemotingCommand, str], object] = validator.validate
        try:
            outcome = self._failures.call(label, validate, request.with_texts(), remote_address)
        except AbortProcessError as refusal:
            raise checked(refusal) from None
        except ExtensionFailedError:
            raise RequestRefusedError(ResponseCode.SYSTEM_ERROR, FAILED) from None
        if outcome is not None:
            # Who returns False means no; so may who returns anything else.
            self._failures.note(label, f"returned {outcome!r} from validate, which is to raise")
            raise RequestRefusedError(ResponseCode.SYSTEM_ERROR, FAILED)
