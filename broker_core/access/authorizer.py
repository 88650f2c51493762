"""Authorizer: verifies the signature of each request and the permissions it needs.

Source: acl/plain/PlainPermissionManager.java validate, checkPerm (4.9.7).
Differs: it checks the signature before it looks for the request's resources, so it never parses an
unauthenticated body; its remark ends with the reason, without a stack frame.
"""

from __future__ import annotations

import hashlib
import hmac
import logging
from collections import Counter
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Protocol

from broker_core.access.address_rule import parts_of
from broker_core.access.explanation import decide
from broker_core.access.freshness import Freshness, NotFreshError
from broker_core.access.rules import RULES, TRACE_NEED
from broker_core.config.limits import LIMITS
from broker_core.errors import AccessRefusedError
from broker_core.message.names import RETRY_GROUP_TOPIC_PREFIX
from broker_core.protocol.codes import ResponseCode
from broker_core.protocol.fresh_signature import FRESH_SIGNATURE
from broker_core.protocol.signature import ACCESS_KEY, SIGNATURE, signature_of, signed_content

if TYPE_CHECKING:
    from collections.abc import Sequence

    from broker_core.access.account import Account
    from broker_core.access.acl_files import AccessState
    from broker_core.access.explanation import Decision
    from broker_core.access.rules import Need
    from broker_core.clock import Clock
    from broker_core.config.limits import LimitsConfig
    from broker_core.protocol.command import RemotingCommand

logger = logging.getLogger(__name__)

EXCEPTION = "org.apache.rocketmq.acl.common.AclException"
"""The start of each refusal's remark; clients check for it."""
DATED_S = 900
"""The maximum age of a RocketMQ 5 client's signature."""
DATE_TIME = "%Y%m%dT%H%M%SZ"
LOG_WINDOW_S = 10.0
LOG_LINES_PER_WINDOW = 5
SHOWN_CHARS_MAX = 64


class AccountSource(Protocol):
    """Provides the current accounts."""

    @property
    def state(self) -> AccessState: ...


class Authorizer:
    """Decides on each request. Event loop only.

    A fresh signature must always be valid. It is required if the account requires it, or, with
    `is_fresh_for_admins`, if the account is an administrator's.

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
            AccessRefusedError: SYSTEM_ERROR with the reason, in RocketMQ's words.
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
                f"Check signature failed for accessKey={shorten_key(account.access_key)}",
            )
        if FRESH_SIGNATURE in request.ext_fields or self._must_be_fresh(account):
            self._check_freshness(request, remote_address, account)
        rule = RULES.get(request.code)
        if rule is None:
            raise self._refusal(
                request,
                remote_address,
                "no rule",
                f"No access rule covers request code={request.code}",
            )
        is_admitted = account.is_admin or (rule.is_broker and account.is_broker)
        if rule.is_admin and not is_admitted:
            raise self._refusal(
                request,
                remote_address,
                "no administrator",
                f"Need admin permission for request code={request.code}, but "
                f"accessKey={shorten_key(account.access_key)} is not",
            )
        try:
            needs = tuple(rule.needs(request))
        except ValueError as error:
            raise self._refusal(
                request, remote_address, "unreadable", f"the request's body cannot be read: {error}"
            ) from error
        self._check(request, remote_address, account, needs)

    def authorize_dated(
        self, request: RemotingCommand, remote_address: str, date_time: str, needs: Sequence[Need]
    ) -> None:
        """Check a call of RocketMQ 5, which signs only its time.

        `request` has the call's access key and signature as ext fields. Such a signature can be
        replayed, so it is valid for only DATED_S seconds, and never for an account that requires
        fresh signatures.

        Raises:
            AccessRefusedError: SYSTEM_ERROR with the reason.
        """
        account = self._account(request, remote_address)
        if account is None:
            return
        access_key = shorten_key(account.access_key)
        given = request.ext_fields.get(SIGNATURE, "").lower().encode("utf-8", "replace")
        expected = hmac.new(account.secret_key.encode(), date_time.encode(), hashlib.sha1)
        if not hmac.compare_digest(expected.hexdigest().encode(), given):
            raise self._refusal(
                request,
                remote_address,
                "wrong signature",
                f"Check signature failed for accessKey={access_key}",
            )
        if self._must_be_fresh(account):
            raise self._refusal(
                request,
                remote_address,
                "no fresh signature",
                f"accessKey={access_key} may only be used with a {FRESH_SIGNATURE}, which "
                "RocketMQ 5 clients can't create",
            )
        if not self._is_recent(date_time):
            raise self._refusal(
                request,
                remote_address,
                "not fresh",
                f"the signature of accessKey={access_key} is dated {date_time[:32]!r}, more "
                f"than {DATED_S // 60} minutes from the broker's time; set the client's clock",
            )
        self._check(request, remote_address, account, needs)

    def _is_recent(self, date_time: str) -> bool:
        try:
            made = datetime.strptime(date_time, DATE_TIME).replace(tzinfo=UTC)
        except ValueError:
            return False
        return abs(self._clock.now_ms() / 1000 - made.timestamp()) <= DATED_S

    def require(self, request: RemotingCommand, remote_address: str, needs: Sequence[Need]) -> None:
        """Check an authorized request again, for the message it refers to.

        Administrators pass, since they could give themselves any permission.

        Raises:
            RequestRefusedError: as `authorize`.
        """
        account = self._account(request, remote_address)
        if account is not None and not account.is_admin:
            self._check(request, remote_address, account, needs)

    def permits(self, access_key: str | None, remote_address: str, need: Need) -> bool:
        """Return whether a peer may receive data that it didn't request.

        `access_key` is the key of a request from the peer that passed `authorize`.
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
        """Return the decision for a correctly signed request of this account from this address.

        `need` is the permission on a topic or a group; None means an administration request.
        """
        return decide(self._accounts.state, access_key, host, need, self._must_be_fresh)

    def _account(self, request: RemotingCommand, remote_address: str) -> Account | None:
        """Return the account in a request; None for an address that needs no account."""
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
                request,
                remote_address,
                "unknown account",
                f"No acl config for {shorten_key(access_key)}",
            )
        is_white = account.white_address(address) and not self._must_be_fresh(account)
        return None if is_white else account

    def _must_be_fresh(self, account: Account) -> bool:
        return account.requires_fresh_signature or (self._is_fresh_for_admins and account.is_admin)

    def _check_freshness(
        self, request: RemotingCommand, remote_address: str, account: Account
    ) -> None:
        access_key = shorten_key(account.access_key)
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
                    f"No default permission for {_printable(resource)}",
                )

    def _refusal(
        self, request: RemotingCommand, remote_address: str, reason: str, sentence: str
    ) -> AccessRefusedError:
        self.refused[reason] += 1
        self._log(request, remote_address, reason)
        return AccessRefusedError(ResponseCode.SYSTEM_ERROR, f"{EXCEPTION}: {sentence}")

    def _log(self, request: RemotingCommand, remote_address: str, reason: str) -> None:
        """Log a refusal; the limit per window keeps peers from filling the disk."""
        now = self._clock.monotonic()
        if now >= self._window_to:
            if self._lines > LOG_LINES_PER_WINDOW:
                logger.warning(
                    "more requests refused not_logged=%d refused_in_all=%d",
                    self._lines - LOG_LINES_PER_WINDOW,
                    self.refused.total(),
                )
            self._window_to = now + LOG_WINDOW_S
            self._lines = 0
        self._lines += 1
        if self._lines <= LOG_LINES_PER_WINDOW:
            logger.warning(
                "request refused reason=%s code=%d access_key=%s peer=%s",
                reason,
                request.code,
                ascii(shorten_key(request.ext_fields.get(ACCESS_KEY))),
                remote_address,
            )


def shorten_key(access_key: str | None) -> str | None:
    """Cut an access key for logs and remarks, because peers may send any length."""
    return access_key if access_key is None else access_key[:SHOWN_CHARS_MAX]


def _printable(resource: str) -> str:
    if resource.startswith(RETRY_GROUP_TOPIC_PREFIX):
        return f"group:{resource.removeprefix(RETRY_GROUP_TOPIC_PREFIX)[:255]}"
    return f"topic:{resource[:255]}"
