"""Live trace requests: watch, stop watching. The codes are ours."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from broker_core.errors import RequestRefusedError
from broker_core.protocol.codes import RequestCode, ResponseCode
from broker_core.protocol.command import RemotingCommand
from broker_core.trace.filter import TraceWatch

if TYPE_CHECKING:
    from broker_core.remoting.connection import Connection
    from broker_core.trace.tracer import Tracer


class TraceProcessor:
    """TRACE_WATCH, TRACE_UNWATCH. Event loop only."""

    def __init__(self, tracer: Tracer) -> None:
        self._tracer = tracer

    def watch(self, request: RemotingCommand, connection: Connection) -> RemotingCommand:
        """TRACE_WATCH with a TraceWatch as body; events follow as oneway TRACE_EVENTS.

        Answers SUCCESS with watchId, SYSTEM_ERROR for a filter that cannot be read, or SYSTEM_BUSY
        when too many watch, at the peer's address or in all.
        """
        try:
            wanted = msgspec.json.decode(request.body or b"{}", type=TraceWatch)
        except msgspec.DecodeError as error:
            raise RequestRefusedError(
                ResponseCode.SYSTEM_ERROR, f"the filter of the trace cannot be read: {error}"
            ) from error

        def push(body: bytes) -> bool:
            if not connection.is_writable:
                return False
            connection.oneway(RemotingCommand.request(RequestCode.TRACE_EVENTS, body=body))
            return True

        host = connection.remote_address.rpartition(":")[0]
        watch_id = self._tracer.watch(connection, wanted, push, host)
        if watch_id is None:
            raise RequestRefusedError(
                ResponseCode.SYSTEM_BUSY,
                "too many watchers follow the live trace already: see hostWatcherNumsMax and "
                "watcherNumsMax",
            )
        return request.answer(ResponseCode.SUCCESS, ext_fields={"watchId": watch_id})

    def unwatch(self, request: RemotingCommand, connection: Connection) -> RemotingCommand:
        """TRACE_UNWATCH. Answers SUCCESS."""
        self._tracer.unwatch(connection)
        return request.answer(ResponseCode.SUCCESS)
