"""Authorizer: whether a request is from whom it says, and whether they may make it.

Source: acl/plain/PlainPermissionManager.java validate, checkPerm (4.9.7).
Differs: the resources of a request are looked for after its signature was checked, so that no body
of a stranger is parsed; the remark has no stack frame behind the reason.
"""

from __future__ import annotations

import hmac
import logging
from collections import Counter
from typing import TYPE_CHECKING, Protocol

from broker_core.access.account import Permission
from broker_core.access.address_rule import parts_of
from broker_core.access.rules import RULES, Need
from broker_core.errors import RequestRefusedError
from broker_core.message.names import RETRY_GROUP_TOPIC_PREFIX
from broker_core.protocol.codes import ResponseCode
from broker_core.protocol.signature import ACCESS_KEY, SIGNATURE, signature_of, signed_content

if TYPE_CHECKING:
    from broker_core.access.acl_files import AccessState
    from broker_core.clock import Clock
    from broker_core.protocol.command import RemotingCommand

logger = logging.getLogger(__name__)

EXCEPTION = "org.apache.rocketmq.acl.common.AclException"
"""What the remark of a refusal begins with; clients look for it."""
TRACE_NEED = Need("RMQ_SYS_TRACE_TOPIC", Permission.PUB)
"""Whoever has an account may send it."""
LOG_WINDOW_S = 10.0
LOG_LINES_PER_WINDOW = 5
SHOWN_CHARS_MAX = 64


class AccountSource(Protocol):
    """Who knows the accounts that are in force now."""

    @property
    def state(self) -> AccessState: ...


class Authorizer:
    """Decides on each request. Event loop only.

    Attributes:
        refused: how many requests were, by reason.
    """

    def __init__(self, accounts: AccountSource, clock: Clock) -> None:
        self.refused: Counter[str] = Counter()
        self._accounts = accounts
        self._clock = clock
        self._window_to = 0.0
        self._lines = 0

    def authorize(self, request: RemotingCommand, remote_address: str) -> None:
        """Let a request pass, or not.

        Raises:
            RequestRefusedError: SYSTEM_ERROR with the reason, in the original's words.
        """
        state = self._accounts.state
        address = parts_of(remote_address.rpartition(":")[0])
        if state.global_white and any(rule(address) for rule in state.global_white):
            return
        access_key = request.ext_fields.get(ACCESS_KEY)
        if access_key is None:
            raise self._refusal(request, remote_address, "no account", "No accessKey is configured")
        account = state.accounts.get(access_key)
        if account is None:
            raise self._refusal(
                request, remote_address, "unknown account", f"No acl config for {shown(access_key)}"
            )
        if account.white_address(address):
            return
        expected = signature_of(signed_content(request), account.secret_key).encode()
        given = request.ext_fields.get(SIGNATURE, "").encode("utf-8", "replace")
        if not hmac.compare_digest(expected, given):
            raise self._refusal(
                request,
                remote_address,
                "wrong signature",
                f"Check signature failed for accessKey={shown(access_key)}",
            )
        rule = RULES.get(request.code)
        if rule is None:
            raise self._refusal(
                request,
                remote_address,
                "no rule",
                f"No rule says who may make request code={request.code}",
            )
        if rule.is_admin and not account.is_admin:
            raise self._refusal(
                request,
                remote_address,
                "no administrator",
                f"Need admin permission for request code={request.code}, but "
                f"accessKey={shown(access_key)} is not",
            )
        try:
            needs = tuple(rule.needs(request))
        except ValueError as error:
            raise self._refusal(
                request, remote_address, "unreadable", f"the request's body cannot be read: {error}"
            ) from error
        if TRACE_NEED in needs:
            return
        for resource, action in needs:
            if not account.may(action, resource):
                raise self._refusal(
                    request,
                    remote_address,
                    "no permission",
                    f"No default permission for {_printed(resource)}",
                )

    def _refusal(
        self, request: RemotingCommand, remote_address: str, reason: str, sentence: str
    ) -> RequestRefusedError:
        self.refused[reason] += 1
        self._log(request, remote_address, reason)
        return RequestRefusedError(ResponseCode.SYSTEM_ERROR, f"{EXCEPTION}: {sentence}")

    def _log(self, request: RemotingCommand, remote_address: str, reason: str) -> None:
        """Write a line, unless too many were written just before: nobody fills a disk with them."""
        now = self._clock.monotonic()
        if now >= self._window_to:
            if self._lines > LOG_LINES_PER_WINDOW:
                logger.warning(
                    "more requests were refused: left_out=%d all=%d",
                    self._lines - LOG_LINES_PER_WINDOW,
                    self.refused.total(),
                )
            self._window_to = now + LOG_WINDOW_S
            self._lines = 0
        self._lines += 1
        if self._lines <= LOG_LINES_PER_WINDOW:
            logger.warning(
                "request refused: reason=%s code=%d access_key=%s peer=%s",
                reason,
                request.code,
                ascii(shown(request.ext_fields.get(ACCESS_KEY))),
                remote_address,
            )


def shown(access_key: str | None) -> str | None:
    """Return an access key as it may be shown: whatever a peer sends is not endless."""
    return access_key if access_key is None else access_key[:SHOWN_CHARS_MAX]


def _printed(resource: str) -> str:
    if resource.startswith(RETRY_GROUP_TOPIC_PREFIX):
        return f"group:{resource.removeprefix(RETRY_GROUP_TOPIC_PREFIX)[:255]}"
    return f"topic:{resource[:255]}"
