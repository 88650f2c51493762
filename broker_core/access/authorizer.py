"""Authorizer: verifies the signature of each request and the permissions it needs.

Source: acl/plain/PlainPermissionManager.java validate, checkPerm (4.9.7).
Differs: it checks the signature before it looks for the request's resources, so that it never
parses a stranger's body; its remark ends with the reason, without a stack frame.
"""

from __future__ import annotations

import hmac
import logging
from collections import Counter
from typing import TYPE_CHECKING, Protocol

from broker_core.access.address_rule import parts_of
from broker_core.access.explaining import decide
from broker_core.access.freshness import Freshness, NotFreshError
from broker_core.access.rules import RULES, TRACE_NEED
from broker_core.config.limits import LIMITS
from broker_core.errors import RequestRefusedError
from broker_core.message.names import RETRY_GROUP_TOPIC_PREFIX
from broker_core.protocol.codes import ResponseCode
from broker_core.protocol.fresh_signature import FRESH_SIGNATURE
from broker_core.protocol.signature import ACCESS_KEY, SIGNATURE, signature_of, signed_content

if TYPE_CHECKING:
    from collections.abc import Sequence

    from broker_core.access.account import Account
    from broker_core.access.acl_files import AccessState
    from broker_core.access.explaining import Decision
    from broker_core.access.rules import Need
    from broker_core.clock import Clock
    from broker_core.config.limits import LimitsConfig
    from broker_core.protocol.command import RemotingCommand

logger = logging.getLogger(__name__)

EXCEPTION = "org.apache.rocketmq.acl.common.AclException"
"""The beginning of each refusal's remark; clients look for it."""
LOG_WINDOW_S = 10.0
LOG_LINES_PER_WINDOW = 5
SHOWN_CHARS_MAX = 64


class AccountSource(Protocol):
    """The provider of the accounts in force."""

    @property
    def state(self) -> AccessState: ...


class Authorizer:
    """Decides on each request. Event loop only.

    A request with a fresh signature must have a right one, too. It may not be missing where the
    account requires it, or, with `is_fresh_for_admins`, where the account is an administrator's.

    Attributes:
        refused: the number of refused requests, by reason.
    """

    def __init__(
        self,
        accounts: AccountSource,
        clock: Clock,
        limits: LimitsConfig = LIMITS,
        *,
        is_fresh_for_admins: bool = False,
    ) -> None:
        self.refused: Counter[str] = Counter()
        self._accounts = accounts
        self._clock = clock
        self._freshness = Freshness(clock, limits)
        self._is_fresh_for_admins = is_fresh_for_admins
        self._window_to = 0.0
        self._lines = 0

    def authorize(self, request: RemotingCommand, remote_address: str) -> None:
        """Check a request from `remote_address`, "ip:port".

        Raises:
            RequestRefusedError: SYSTEM_ERROR with the reason, in the original's words.
        """
        account = self._account(request, remote_address)
        if account is None:
            return
        expected = signature_of(signed_content(request), account.secret_key).encode()
        given = request.ext_fields.get(SIGNATURE, "").encode("utf-8", "replace")
        if not hmac.compare_digest(expected, given):
            raise self._refusal(
                request,
                remote_address,
                "wrong signature",
                f"Check signature failed for accessKey={shown(account.access_key)}",
            )
        if FRESH_SIGNATURE in request.ext_fields or self._must_be_fresh(account):
            self._check_freshness(request, remote_address, account)
        rule = RULES.get(request.code)
        if rule is None:
            raise self._refusal(
                request,
                remote_address,
                "no rule",
                f"No rule says who may make request code={request.code}",
            )
        is_admitted = account.is_admin or (rule.is_broker and account.is_broker)
        if rule.is_admin and not is_admitted:
            raise self._refusal(
                request,
                remote_address,
                "no administrator",
                f"Need admin permission for request code={request.code}, but "
                f"accessKey={shown(account.access_key)} is not",
            )
        try:
            needs = tuple(rule.needs(request))
        except ValueError as error:
            raise self._refusal(
                request, remote_address, "unreadable", f"the request's body cannot be read: {error}"
            ) from error
        self._check(request, remote_address, account, needs)

    def require(self, request: RemotingCommand, remote_address: str, needs: Sequence[Need]) -> None:
        """Check an authorized request again, for the message that it found.

        Administrators pass: they could give themselves any permission.

        Raises:
            RequestRefusedError: as `authorize`.
        """
        account = self._account(request, remote_address)
        if account is not None and not account.is_admin:
            self._check(request, remote_address, account, needs)

    def permits(self, access_key: str | None, remote_address: str, need: Need) -> bool:
        """Return whether a peer may be told something that it has not asked for.

        `access_key` is that of a request of the peer's that passed `authorize`.
        """
        state = self._accounts.state
        address = parts_of(remote_address.rpartition(":")[0])
        if any(rule(address) for rule in state.global_white):
            return True
        account = None if access_key is None else state.accounts.get(access_key)
        if account is None:
            return False
        is_white = account.is_admin or account.white_address(address)
        return is_white or need == TRACE_NEED or account.may(need.action, need.resource)

    def explain(self, access_key: str | None, host: str, need: Need | None) -> Decision:
        """Say what would become of a rightly signed request of this account from this address.

        `need` is what it would do to a topic or a group; None stands for what administrators do.
        """
        return decide(self._accounts.state, access_key, host, need, self._must_be_fresh)

    def _account(self, request: RemotingCommand, remote_address: str) -> Account | None:
        """Return the account that a request names; None for an address that may do everything."""
        state = self._accounts.state
        address = parts_of(remote_address.rpartition(":")[0])
        if state.global_white and any(rule(address) for rule in state.global_white):
            return None
        access_key = request.ext_fields.get(ACCESS_KEY)
        if access_key is None:
            raise self._refusal(request, remote_address, "no account", "No accessKey is configured")
        account = state.accounts.get(access_key)
        if account is None:
            raise self._refusal(
                request, remote_address, "unknown account", f"No acl config for {shown(access_key)}"
            )
        is_white = account.white_address(address) and not self._must_be_fresh(account)
        return None if is_white else account

    def _must_be_fresh(self, account: Account) -> bool:
        return account.requires_fresh_signature or (self._is_fresh_for_admins and account.is_admin)

    def _check_freshness(
        self, request: RemotingCommand, remote_address: str, account: Account
    ) -> None:
        access_key = shown(account.access_key)
        if FRESH_SIGNATURE not in request.ext_fields:
            raise self._refusal(
                request,
                remote_address,
                "no fresh signature",
                f"accessKey={access_key} may only be used with a {FRESH_SIGNATURE} "
                "(requireFreshSignature, adminsRequireFreshSignature)",
            )
        try:
            self._freshness.check(request, account)
        except NotFreshError as error:
            raise self._refusal(
                request,
                remote_address,
                "not fresh",
                f"Check {FRESH_SIGNATURE} failed for accessKey={access_key}: {error}",
            ) from error

    def _check(
        self,
        request: RemotingCommand,
        remote_address: str,
        account: Account,
        needs: Sequence[Need],
    ) -> None:
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
        """Log a refusal; the limit per window keeps peers from filling the disk."""
        now = self._clock.monotonic()
        if now >= self._window_to:
            if self._lines > LOG_LINES_PER_WINDOW:
                logger.warning(
                    "more requests refused: not_logged=%d refused_in_all=%d",
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
    """Cut an access key to the length that logs and remarks show: peers send any length."""
    return access_key if access_key is None else access_key[:SHOWN_CHARS_MAX]


def _printed(resource: str) -> str:
    if resource.startswith(RETRY_GROUP_TOPIC_PREFIX):
        return f"group:{resource.removeprefix(RETRY_GROUP_TOPIC_PREFIX)[:255]}"
    return f"topic:{resource[:255]}"
