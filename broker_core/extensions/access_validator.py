"""AccessValidator: decides whether a request may be made.

Source: acl/AccessValidator.java, broker/BrokerController.java initialAcl (4.9.7), where the
validators of META-INF/service replace the plain one, or are listed beside it.
Differs: one method; a validator administrates its own accounts by its own means.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    from broker_core.protocol.command import RemotingCommand


class Resource(NamedTuple):
    """What a request acts on, and how."""

    kind: str
    """topic or group."""
    name: str
    action: str
    """PUB or SUB."""


class AccessValidator(Protocol):
    """While aclEnable=true the broker asks it about each request on its two ports, heartbeats and
    pulls included, and about the requests to its embedded name server that change something.

    `accessValidators` names the validators in their order; all of them have to agree. `plain_acl`
    is plain_acl.yml: name it to keep it.

    The broker calls it on the event loop before anything else looks at the request. A call that
    takes long or waits (for a directory service) holds up every client: keep decisions, and refresh
    them in a thread of your own. Every mistake refuses: an exception other than AbortProcessError,
    or a result other than None, is logged once and counted, and the client gets SYSTEM_ERROR (1).
    """

    interface_version: int

    def validate(self, request: RemotingCommand, remote_address: str) -> None:
        """Return if the request is allowed. Do not change the request; a signature covers it.

        `remote_address` is "ip:port"; behind a PROXY header it is the one that the header names.
        `broker_core.protocol.signature` has what clients sign, and how.

        Raises:
            AbortProcessError: it may not; the client gets code and remark, 16 (NO_PERMISSION) or,
                as RocketMQ 4.9 answers, 1 with a remark that begins with
                "org.apache.rocketmq.acl.common.AclException: ". A remark must not hold secrets.
        """
        ...


class FoundValidator(AccessValidator, Protocol):
    """A validator with a second method, which the broker calls if it is there.

    A request may name a message by its place in the log, or a half message to be committed; only
    the message that is found there says whose it is. A validator without this method lets each
    request that passed `validate` act on any message.
    """

    def validate_found(
        self, request: RemotingCommand, remote_address: str, found: Sequence[Resource]
    ) -> None:
        """Return if a request that passed `validate` may act on what it has led to.

        VIEW_MESSAGE_BY_ID, CONSUMER_SEND_MSG_BACK and CONSUME_MESSAGE_DIRECTLY need SUB on the
        message's topic, or on the group of its retry topic. END_TRANSACTION needs PUB on the half
        message's topic, RESUME_CHECK_HALF_MESSAGE on TRANS_CHECK_MAX_TIME_TOPIC, SEND_REPLY_MESSAGE
        on a topic that is not the cluster's reply topic.

        Raises:
            AbortProcessError: as from `validate`.
        """
        ...
