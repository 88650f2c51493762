"""AccessValidators: the access validators of extensions, with plain_acl as one of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker_core.access.account import Permission
from broker_core.errors import AbortProcessError, RequestRefusedError
from broker_core.extensions.access_validator import Resource
from broker_core.extensions.failures import ExtensionFailedError
from broker_core.message.names import RETRY_GROUP_TOPIC_PREFIX
from broker_core.processors.wrappers.hooks import as_failure
from broker_core.protocol.codes import ResponseCode

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from broker_core.access.authorizer import Authorizer
    from broker_core.access.rules import Need
    from broker_core.extensions.access_validator import AccessValidator
    from broker_core.extensions.failures import Failures
    from broker_core.extensions.loading import ActiveExtension
    from broker_core.protocol.command import RemotingCommand

FAILED = "access control failed; see the broker's log"


class AccessValidators:
    """Calls each validator in turn; all must agree. Event loop only."""

    def __init__(
        self,
        validators: tuple[ActiveExtension[AccessValidator | None], ...],
        plain: Authorizer | None,
        failures: Failures,
    ) -> None:
        self._validators = validators
        self._plain = plain
        self._failures = failures

    def authorize(self, request: RemotingCommand, remote_address: str) -> None:
        """Authorize a request.

        Raises:
            RequestRefusedError: a validator refuses or fails.
        """
        for label, validator in self._validators:
            if validator is not None:
                self._ask(label, "validate", validator.validate, request, remote_address)
            elif self._plain is not None:
                self._plain.authorize(request, remote_address)

    def require(self, request: RemotingCommand, remote_address: str, needs: Sequence[Need]) -> None:
        """Authorize a request for the resource found; validators without `validate_found` agree.

        Raises:
            RequestRefusedError: a validator refuses or fails.
        """
        for label, validator in self._validators:
            if validator is not None:
                validate_found = getattr(validator, "validate_found", None)
                if validate_found is not None:
                    found = tuple(_resource(need) for need in needs)
                    self._ask(
                        label, "validate_found", validate_found, request, remote_address, found
                    )
            elif self._plain is not None:
                self._plain.require(request, remote_address, needs)

    def permits(self, access_key: str | None, remote_address: str, need: Need) -> bool:
        """Return whether a peer may receive unrequested data; validators only see requests."""
        return self._plain is None or self._plain.permits(access_key, remote_address, need)

    def _ask(
        self,
        label: str,
        name: str,
        validate: Callable[..., object],
        request: RemotingCommand,
        *more: object,
    ) -> None:
        try:
            outcome = self._failures.call(label, validate, request.with_texts(), *more)
        except AbortProcessError as refusal:
            raise as_failure(refusal) from None
        except ExtensionFailedError:
            raise RequestRefusedError(ResponseCode.SYSTEM_ERROR, FAILED) from None
        if outcome is not None:
            # Refuse: False probably means no, and any other value is ambiguous.
            self._failures.note(
                label, f"returned {outcome!r} from {name}, which must raise instead"
            )
            raise RequestRefusedError(ResponseCode.SYSTEM_ERROR, FAILED)


def _resource(need: Need) -> Resource:
    action = "PUB" if need.action == Permission.PUB else "SUB"
    if need.resource.startswith(RETRY_GROUP_TOPIC_PREFIX):
        return Resource("group", need.resource.removeprefix(RETRY_GROUP_TOPIC_PREFIX), action)
    return Resource("topic", need.resource, action)
