"""What goes wrong between the console and a broker, in sentences for people.

::

    GatewayError               never raised itself: what happened, what to do about it
      NameServerDownError      no name server answers
      BrokerDownError          a broker does not answer
      UnconfirmedBrokerError   nobody has confirmed that a broker's address may be asked
      UnknownStoreError        an id names a broker that is no master of now
      RequestFailedError       the broker understood the request and said no: its code, its words
        NotFoundError          the topic or group is not there
      UnreadableAnswerError    the answer is not what the request promises
"""

from __future__ import annotations

from django.utils.translation import gettext as _

SYSTEM_ERROR = 1
NO_PERMISSION = 16
TOPIC_NOT_EXIST = 17
SUBSCRIPTION_GROUP_NOT_EXIST = 26
CONSUMER_NOT_ONLINE = 206


class GatewayError(Exception):
    """Root of the tree; `advice` says what the reader can do."""

    def __init__(self, what: str, advice: str = "") -> None:
        super().__init__(what)
        self.what = what
        self.advice = advice


class NameServerDownError(GatewayError):
    """No name server of the settings answers, so no broker can be found."""

    def __init__(self, addresses: list[str], reason: str) -> None:
        where = ", ".join(addresses)
        super().__init__(
            _("The name server at %(where)s does not answer: %(reason)s.")
            % {"where": where, "reason": reason},
            _(
                "Check that the broker process runs and that TREBUCHET_NAMESRV names its "
                "name server. This page works again as soon as it answers."
            ),
        )


class BrokerDownError(GatewayError):
    """A broker does not answer; what it did with the last request is not known."""

    def __init__(self, address: str, reason: str) -> None:
        super().__init__(
            _("The broker at %(address)s does not answer: %(reason)s.")
            % {"address": address, "reason": reason},
            _(
                "Check that the broker process runs and that this machine reaches the address "
                "it advertises (brokerIP1, listenPort in its configuration)."
            ),
        )
        self.address = address
        self.reason = reason


class UnconfirmedBrokerError(GatewayError):
    """A name server names a broker that neither the settings nor an administrator know."""

    def __init__(self, address: str) -> None:
        super().__init__(
            _("The broker at %(address)s is not confirmed, so the console asks it nothing.")
            % {"address": address},
            _(
                "The console signs its requests with an administrator's account. An administrator "
                "confirms on the overview that this address belongs to a broker of yours, or "
                "TREBUCHET_BROKERS names it."
            ),
        )
        self.address = address


class UnknownStoreError(GatewayError):
    """A message's id names a broker that is not registered as a master, so nobody was asked."""

    def __init__(self, address: str) -> None:
        super().__init__(
            _("The id names the broker at %(address)s, and no master of that address is known.")
            % {"address": address},
            _(
                "A broker that has moved stores under its new address; look for its messages by "
                "key or by time. Unique keys look like ids: name the topic to look for one."
            ),
        )
        self.address = address


class RequestFailedError(GatewayError):
    """The broker refused: its response code with its own words."""

    def __init__(self, address: str, code: int, remark: str) -> None:
        super().__init__(
            _("The broker at %(address)s refused: %(remark)s (code %(code)d).")
            % {"address": address, "remark": remark or _("it gave no reason"), "code": code}
        )
        self.address = address
        self.code = code
        self.remark = remark


class NotFoundError(RequestFailedError):
    """The topic or the group does not exist."""


class UnreadableAnswerError(GatewayError):
    """An answer whose body or header is not what the request promises."""

    def __init__(self, address: str, request: str, reason: str) -> None:
        super().__init__(
            _("The answer of %(address)s to %(request)s cannot be read: %(reason)s.")
            % {"address": address, "request": request, "reason": reason},
            _("Check that the address is a broker's remoting port and not another service."),
        )


def refused(address: str, code: int, remark: str | None) -> RequestFailedError:
    """Return the error that a response code stands for."""
    if code in {TOPIC_NOT_EXIST, SUBSCRIPTION_GROUP_NOT_EXIST}:
        return NotFoundError(address, code, remark or "")
    return RequestFailedError(address, code, remark or "")
