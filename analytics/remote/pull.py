"""Pulls a range of a queue: the records as the broker stores them.

Source: broker/processor/PullMessageProcessor.java, common/sysflag/PullSysFlag.java (4.9.7).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from analytics.errors import ReportError
from broker_core.protocol.codes import RequestCode, ResponseCode

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from analytics.remote.cluster import Cluster, Queue

SUBSCRIPTION = 4
"""The request contains its subscription, because the group has no registered consumer."""
MESSAGES_A_PULL = 4096
"""The broker applies a limit as well (maxTransferCountOnMessageInMemory)."""
PULLS_WITHOUT_PROGRESS_MAX = 8
MOVED = frozenset(
    {
        ResponseCode.PULL_NOT_FOUND,
        ResponseCode.PULL_RETRY_IMMEDIATELY,
        ResponseCode.PULL_OFFSET_MOVED,
    }
)


class PulledRange:
    """Pulls the messages `[first, behind)` of a queue once, in the name of a group.

    Attributes:
        lost: ranges of queue offsets that the broker no longer has, or never had.
    """

    def __init__(self, queue: Queue, first: int, behind: int, group: str) -> None:
        self.lost: list[tuple[int, int]] = []
        self._queue = queue
        self._first = first
        self._behind = behind
        self._group = group

    async def bodies(self, cluster: Cluster) -> AsyncGenerator[bytes]:
        """Yield concatenated records of messages in the range, and possibly after it.

        Raises:
            ReportError: the broker doesn't respond, or its response isn't valid.
        """
        position, idle = self._first, 0
        most_a_pull = cluster.access.pull_batch_size or MESSAGES_A_PULL
        while position < self._behind:
            most = min(most_a_pull, self._behind - position)
            fields = pull_fields(self._queue, position, most, self._group)
            answer = await cluster.ask(self._queue, RequestCode.PULL_MESSAGE, fields, also=MOVED)
            try:
                following = int(answer.ext_fields["nextBeginOffset"])
            except (KeyError, ValueError) as error:
                raise ReportError(
                    f"The broker's response for {self._queue} has no valid next offset."
                ) from error
            if answer.code == ResponseCode.SUCCESS:
                yield answer.body
            elif answer.code == ResponseCode.PULL_NOT_FOUND or following < position:
                # After the end of the queue, or of another queue with this name.
                self.lost.append((position, self._behind))
                return
            elif following > position:
                self.lost.append((position, min(following, self._behind)))
            idle = 0 if following > position else idle + 1
            if idle > PULLS_WITHOUT_PROGRESS_MAX:
                self.lost.append((position, self._behind))
                return
            position = max(position, following)


async def record_at(cluster: Cluster, queue: Queue, offset: int, group: str) -> bytes:
    """Return the record at an offset of a queue as the broker stores it, or empty bytes.

    Raises:
        ReportError: the broker doesn't respond.
    """
    fields = pull_fields(queue, offset, 1, group)
    answer = await cluster.ask(queue, RequestCode.PULL_MESSAGE, fields, also=MOVED)
    return answer.body if answer.code == ResponseCode.SUCCESS else b""


def pull_fields(queue: Queue, offset: int, most: int, group: str) -> dict[str, str]:
    """Return the fields of a request for at most `most` messages from an offset on."""
    return {
        "consumerGroup": group,
        "topic": queue.topic,
        "queueId": str(queue.queue_id),
        "queueOffset": str(offset),
        "maxMsgNums": str(most),
        "sysFlag": str(SUBSCRIPTION),
        "commitOffset": "0",
        "suspendTimeoutMillis": "0",
        "subscription": "*",
        "subVersion": "0",
        "expressionType": "TAG",
    }
