"""RPCHook: hears of each request and its answer.

Source: remoting/RPCHook.java, remoting/netty/NettyRemotingAbstract.java (4.9.7).
Differs: an exception does not refuse the request, unless it is AbortProcessError.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from broker_core.protocol.command import RemotingCommand


class RPCHook(Protocol):
    """Hears of each request that a client makes on one of the broker's two ports.

    It does not hear of requests that access control refuses, that nobody serves, that the overload
    rules answer, or that reach the embedded name server.

    The broker calls hooks on the event loop, in the configuration's order: a call that takes long
    or waits holds up every client. Any exception but AbortProcessError from `do_before_request`
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
