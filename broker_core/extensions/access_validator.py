"""AccessValidator: decides whether a request may be made.

Source: acl/AccessValidator.java, broker/BrokerController.java initialAcl (4.9.7), where the
validators of META-INF/service replace the plain one, or are listed beside it.
Differs: one method; accounts of one's own are administrated by one's own means.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from broker_core.protocol.command import RemotingCommand


class AccessValidator(Protocol):
    """Asked about each request on the broker's two ports, heartbeats and pulls included, while
    aclEnable=true.

    `accessValidators` names those that are asked, in their order; all of them have to agree.
    `plain_acl` is plain_acl.yml: name it to keep it.

    Called on the event loop before anything else looks at the request: what takes long or waits
    (a directory service) holds every client of the broker; keep what is decided, and refresh it in
    a thread of your own. Whatever goes wrong refuses: an exception that is not AbortProcessError
    is logged once and counted, and the request answered SYSTEM_ERROR (1); so is one for which
    anything but None is returned.
    """

    interface_version: int

    def validate(self, request: RemotingCommand, remote_address: str) -> None:
        """Return when the request may be made. It must not be changed; a signature covers it.

        `remote_address` is "ip:port"; behind a PROXY header it is the one that the header names.
        `broker_core.protocol.signature` has what clients sign, and how.

        Raises:
            AbortProcessError: it may not; the client gets code and remark, 16 (NO_PERMISSION) or,
                as RocketMQ 4.9 answers, 1 with a remark that begins with
                "org.apache.rocketmq.acl.common.AclException: ". No secret belongs into a remark.
        """
        ...
