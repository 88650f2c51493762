"""UPDATE_DELAY_OFFSET: set a delay level's next offset. The request code is Trebuchet's own."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from broker_core.errors import RequestRefusedError
from broker_core.protocol import java_json
from broker_core.protocol.codes import ResponseCode
from broker_core.protocol.headers import fields
from broker_core.protocol.signature import ACCESS_KEY

if TYPE_CHECKING:
    from broker_core.delay.schedule import ScheduleService
    from broker_core.protocol.command import RemotingCommand
    from broker_core.remoting.connection import Connection

logger = logging.getLogger(__name__)


class DelaysAdmin:
    """UPDATE_DELAY_OFFSET. Event loop only."""

    def __init__(self, schedule: ScheduleService) -> None:
        self._schedule = schedule

    async def update_offset(
        self, request: RemotingCommand, connection: Connection
    ) -> RemotingCommand:
        """UPDATE_DELAY_OFFSET: start a level's next delivery at an offset of its queue.

        Fields: level, offset. Messages skipped by moving ahead are never delivered; after moving
        back, messages are delivered again as new messages. Answers SUCCESS with {"from", "to"} once
        delayOffset.json is written; SYSTEM_ERROR for an unknown level, for an offset outside the
        level's queue, and when the file can't be written: the offset then applies anyway, and the
        write is retried.
        """
        header = request.ext_fields
        level = fields.int32(header, "level")
        wanted = fields.int64(header, "offset", low=0)
        ends = self._schedule.range_of(level)
        if ends is None:
            raise _refusal(f"there is no delay level {level}")
        low, high = ends
        if not low <= wanted <= high:
            raise _refusal(f"delay level {level} has the offsets from {low} to {high}")
        before = self._schedule.offset_of(level)
        is_kept = await self._schedule.go_to(level, wanted)
        logger.warning(
            "delay offset moved by request level=%d from=%d to=%d access_key=%s peer=%s",
            level,
            before,
            wanted,
            header.get(ACCESS_KEY),
            connection.remote_address,
        )
        if not is_kept:
            raise _refusal(
                "the offset is in effect, but couldn't be written to disk; the broker will retry"
            )
        body = java_json.encode({"from": before, "to": wanted})
        return request.answer(ResponseCode.SUCCESS, body=body)


def _refusal(remark: str) -> RequestRefusedError:
    return RequestRefusedError(ResponseCode.SYSTEM_ERROR, remark)
