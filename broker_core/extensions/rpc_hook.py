"""RPCHook: told of each request and its answer.

Source: remoting/RPCHook.java, remoting/netty/NettyRemotingAbstract.java (4.9.7).
Differs: an exception does not refuse the request, unless it is AbortProcessError.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from broker_core.protocol.command import RemotingCommand


class RPCHook(Protocol):
    """Told of each request that a client makes on one of the broker's two ports.

    After access control: a request that is refused there is not told of. Nor is a code that nobody
    serves, what the overload rules answer, or what reaches the embedded name server.

    Called on the event loop, hooks in the order of the configuration: what takes long or waits
    holds every client of the broker. Any exception but AbortProcessError from `do_before_request`
    is logged once, counted, and changes nothing for the request.
    """

    interface_version: int

    def do_before_request(self, remote_address: str, request: RemotingCommand) -> None:
        """Before a request is served; remote_address is "ip:port".

        `request.code`, `request.ext_fields` (names and values as texts, as received) and
        `request.body` (bytes) may be read. What is written into ext_fields is served.

        Raises:
            AbortProcessError: the request is answered with this code and remark. Neither the hooks
                behind this one nor any `do_after_response` are called for it.
        """
        ...

    def do_after_response(
        self, remote_address: str, request: RemotingCommand, response: RemotingCommand | None
    ) -> None:
        """When the answer is there, before it leaves.

        `response` is None when there is none yet, or never: a pull that waits for messages, the
        end of a transaction that stays undecided. A oneway request has an answer that is not sent.
        The body of a pull's answer is in `response.parts`, as views that are valid during this
        call only. What is written into code, remark, ext_fields or body is what the client gets.
        """
        ...
