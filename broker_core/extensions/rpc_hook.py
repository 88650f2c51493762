"""RPCHook: observes each request and its answer.

Source: remoting/RPCHook.java, remoting/netty/NettyRemotingAbstract.java (4.9.7).
Differs: only AbortProcessError refuses the request, other exceptions don't.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from broker_core.protocol.command import RemotingCommand


class RPCHook(Protocol):
    """Called for each request that a client makes on one of the broker's two ports.

    It isn't called for requests that access control or the overload rules refuse, that have no
    handler, or that go to the embedded name server.

    The broker calls hooks on the event loop, in the configuration's order: a slow or blocking call
    delays every client. Any exception except AbortProcessError from `do_before_request` is logged
    once, counted, and has no effect on the request.
    """

    interface_version: int

    def do_before_request(self, remote_address: str, request: RemotingCommand) -> None:
        """Called before a request is processed; remote_address is "ip:port".

        The hook may read `request.code`, `request.ext_fields` (names and values as texts, as
        received) and `request.body` (bytes). Changes to ext_fields take effect.

        Raises:
            AbortProcessError: the request is answered with this code and remark. Neither later
                hooks nor any `do_after_response` are called for it.
        """
        ...

    def do_after_response(
        self, remote_address: str, request: RemotingCommand, response: RemotingCommand | None
    ) -> None:
        """Called when the answer is ready, before it is sent.

        `response` is None when there is no answer, or not yet: a pull that waits for messages, the
        end of a transaction that stays undecided. A oneway request has an answer that isn't sent.
        The body of a pull's answer is in `response.parts`, as views that are valid only during this
        call. Changes to code, remark, ext_fields or body are sent to the client.
        """
        ...
