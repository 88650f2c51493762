"""Errors between the console and a broker, with messages for people.

::

    GatewayError               base class: what happened and what to do about it
      NameServerDownError      no name server responds
      BrokerDownError          a broker doesn't respond
      UnconfirmedBrokerError   the broker's address hasn't been confirmed
      UnknownStoreError        the message ID names a broker that isn't a master now
      RequestFailedError       the broker refused the request: its code and remark
        NotFoundError          the topic or group doesn't exist
      UnreadableAnswerError    the answer can't be parsed
"""

from __future__ import annotations

from django.utils.translation import gettext as _

SYSTEM_ERROR = 1
NO_PERMISSION = 16
TOPIC_NOT_EXIST = 17
SUBSCRIPTION_GROUP_NOT_EXIST = 26
CONSUMER_NOT_ONLINE = 206


class GatewayError(Exception):
    """Base class of the gateway's errors; `advice` says what the reader can do."""

    def __init__(self, what: str, advice: str = "") -> None:
        super().__init__(what)
        self.what = what
        self.advice = advice


class NameServerDownError(GatewayError):
    """None of the configured name servers responds, so brokers can't be located."""

    def __init__(self, addresses: list[str], reason: str) -> None:
        where = ", ".join(addresses)
        super().__init__(
            _("The name server at %(where)s isn't responding: %(reason)s.")
            % {"where": where, "reason": reason},
            _(
                "Check that the broker process is running and that TREBUCHET_NAMESRV points to "
                "its name server. This page recovers automatically."
            ),
        )


class BrokerDownError(GatewayError):
    """A broker doesn't respond; whether it processed the last request is unknown."""

    def __init__(self, address: str, reason: str) -> None:
        super().__init__(
            _("The broker at %(address)s isn't responding: %(reason)s.")
            % {"address": address, "reason": reason},
            _(
                "Check that the broker process is running and that this machine can reach its "
                "advertised address (brokerIP1 and listenPort in its configuration)."
            ),
        )
        self.address = address
        self.reason = reason


class UnconfirmedBrokerError(GatewayError):
    """The name server lists a broker that neither the settings nor an administrator approved."""

    def __init__(self, address: str) -> None:
        super().__init__(
            _(
                "The broker at %(address)s hasn't been confirmed, so the console doesn't send "
                "it any requests."
            )
            % {"address": address},
            _(
                "The console signs its requests with an administrator's account. An "
                "administrator must confirm on the overview that this address belongs to one "
                "of your brokers, or list it in TREBUCHET_BROKERS."
            ),
        )
        self.address = address


class UnknownStoreError(GatewayError):
    """The message ID names a broker that isn't registered as a master, so no request was sent."""

    def __init__(self, address: str) -> None:
        super().__init__(
            _(
                "The ID refers to the broker at %(address)s, but no master with that address "
                "is known."
            )
            % {"address": address},
            _(
                "If the broker has moved, it stores messages under its new address. Search by "
                "key or time instead. Unique keys look like IDs; to search for one, enter the "
                "topic."
            ),
        )
        self.address = address


class RequestFailedError(GatewayError):
    """The broker refused the request, with a response code and remark."""

    def __init__(self, address: str, code: int, remark: str) -> None:
        super().__init__(
            _("The broker at %(address)s rejected the request: %(remark)s (code %(code)d).")
            % {"address": address, "remark": remark or _("no reason given"), "code": code}
        )
        self.address = address
        self.code = code
        self.remark = remark


class NotFoundError(RequestFailedError):
    """The topic or group doesn't exist."""


class UnreadableAnswerError(GatewayError):
    """The header or body of an answer doesn't have the expected form."""

    def __init__(self, address: str, request: str, reason: str) -> None:
        super().__init__(
            _("The response of %(address)s to %(request)s can't be read: %(reason)s.")
            % {"address": address, "request": request, "reason": reason},
            _("Check that the address is a broker's remoting port and not another service."),
        )


def refused(address: str, code: int, remark: str | None) -> RequestFailedError:
    """Return the error for a response code."""
    if code in {TOPIC_NOT_EXIST, SUBSCRIPTION_GROUP_NOT_EXIST}:
        return NotFoundError(address, code, remark or "")
    return RequestFailedError(address, code, remark or "")
