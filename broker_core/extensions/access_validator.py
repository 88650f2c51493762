"""AccessValidator: decides whether a request is allowed.

Source: acl/AccessValidator.java, broker/BrokerController.java initialAcl (4.9.7), where the
validators of META-INF/service replace the plain one, or are listed next to it.
Differs: one method; a validator administers its accounts on its own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    from broker_core.protocol.command import RemotingCommand


class Resource(NamedTuple):
    """The object of a request, and the action on it."""

    kind: str
    """topic or group."""
    name: str
    action: str
    """PUB or SUB."""


class AccessValidator(Protocol):
    """Called for each request if aclEnable=true.

    That covers requests on the broker's two ports, including heartbeats and pulls, and requests
    that change something in its embedded name server.

    `accessValidators` names the validators in order; all of them must allow the request.
    `plain_acl`
    is plain_acl.yml: list it to keep it.

    The broker calls it on the event loop before any other code sees the request. A slow or blocking
    call (to a directory service) delays every client: cache decisions, and refresh them in your own
    thread. Every error means refusal: an exception other than AbortProcessError, or a result other
    than None, is logged once and counted, and the client gets SYSTEM_ERROR (1).
    """

    interface_version: int

    def validate(self, request: RemotingCommand, remote_address: str) -> None:
        """Return if the request is allowed. Don't change the request: a signature covers it.


        `remote_address` is "ip:port"; behind a PROXY header it is the address in the header.
        `broker_core.protocol.signature` documents what clients sign, and how.

        Raises:
            AbortProcessError: the request is refused; the client gets code and remark, 16
                (NO_PERMISSION) or, as RocketMQ 4.9 answers, 1 with a remark that begins with
                "org.apache.rocketmq.acl.common.AclException: ". A remark must not contain secrets.
        """
        ...


class FoundValidator(AccessValidator, Protocol):
    """A validator with an optional second method, which the broker calls if it exists.

    A request may refer to a message by its log offset, or to a half message to be committed; only
    the stored message shows which topic it belongs to. A validator without this method lets each
    request that passed `validate` act on any message.
    """

    def validate_found(
        self, request: RemotingCommand, remote_address: str, found: Sequence[Resource]
    ) -> None:
        """Return if a request that passed `validate` may act on the message it refers to.

        VIEW_MESSAGE_BY_ID, CONSUMER_SEND_MSG_BACK and CONSUME_MESSAGE_DIRECTLY need SUB on the
        message's topic, or on the group of its retry topic. END_TRANSACTION needs PUB on the half
        message's topic, RESUME_CHECK_HALF_MESSAGE on TRANS_CHECK_MAX_TIME_TOPIC, SEND_REPLY_MESSAGE
        on a topic other than the cluster's reply topic.

        Raises:
            AbortProcessError: as from `validate`.
        """
        ...
