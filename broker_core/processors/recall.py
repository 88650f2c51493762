"""RECALL_MESSAGE: a producer recalls a timer message before it is delivered.

Source: broker/processor/RecallMessageProcessor.java (5.3.3). Differs: a handle that matches no
pending message is rejected; RocketMQ stores a cancel message without effect and answers SUCCESS.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker_core.errors import RequestRefusedError
from broker_core.message.topic_config import PERM_WRITE
from broker_core.protocol.codes import ResponseCode
from broker_core.protocol.headers import fields
from broker_core.store.results import PutMessageStatus
from broker_core.timers import recall_handle

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from broker_core.clock import Clock
    from broker_core.config.broker import BrokerConfig
    from broker_core.config.store import StoreConfig
    from broker_core.ha.role import Role
    from broker_core.metadata.topics import Topics
    from broker_core.protocol.command import RemotingCommand
    from broker_core.remoting.connection import Connection
    from broker_core.store.message_store import MessageStore
    from broker_core.timers.recall_handle import RecallHandle
    from broker_core.timers.service import TimerService

UNAVAILABLE = "recall failed, broker service not available"


class RecallProcessor:
    """RECALL_MESSAGE (370). Event loop only."""

    def __init__(
        self,
        config: BrokerConfig,
        store_config: StoreConfig,
        role: Role,
        topics: Topics,
        store: MessageStore,
        timers: TimerService,
        clock: Clock,
    ) -> None:
        self._config = config
        self._store_config = store_config
        self._role = role
        self._topics = topics
        self._store = store
        self._timers = timers
        self._clock = clock

    def recall_message(
        self, request: RemotingCommand, _: Connection
    ) -> RemotingCommand | Awaitable[RemotingCommand]:
        """RECALL_MESSAGE.

        Answers SUCCESS with msgId, the recalled message's unique key; NO_PERMISSION while
        recallMessageEnable is false, ILLEGAL_OPERATION for a handle that matches no pending
        message, TOPIC_NOT_EXIST, SYSTEM_ERROR, SERVICE_NOT_AVAILABLE, or, on a slave,
        SLAVE_NOT_AVAILABLE.
        """
        header = request.ext_fields
        topic = fields.text(header, "topic")
        text = fields.text(header, "recallHandle")
        self._require_service(topic)
        handle = self._handle(text, topic)
        put = self._timers.recall(handle)
        if put is None:
            raise _illegal("recall failed, no pending message matches the handle")
        if put.status is not PutMessageStatus.PUT_OK:
            raise RequestRefusedError(ResponseCode.SYSTEM_ERROR, "recall failed, execute error")
        answer = request.answer(ResponseCode.SUCCESS, ext_fields={"msgId": handle.uniq_key})
        acknowledged = self._store.acknowledge.until_acknowledged(put)
        return answer if acknowledged is None else _when_acknowledged(acknowledged, answer)

    def _require_service(self, topic: str) -> None:
        config = self._config
        if not config.recall_message_enable:
            raise RequestRefusedError(
                ResponseCode.NO_PERMISSION, "recall failed, operation is forbidden"
            )
        if self._role.is_slave:
            raise RequestRefusedError(ResponseCode.SLAVE_NOT_AVAILABLE, UNAVAILABLE)
        if (
            self._clock.now_ms() < config.start_accept_send_request_time_stamp
            or not self._is_writeable_enough()
            or not self._timers.is_loaded
        ):
            raise RequestRefusedError(ResponseCode.SERVICE_NOT_AVAILABLE, UNAVAILABLE)
        if self._topics.find(topic) is None:
            raise RequestRefusedError(
                ResponseCode.TOPIC_NOT_EXIST, f"recall failed, the topic[{topic}] not exist"
            )
        if not self._store_config.message_index_enable:
            raise RequestRefusedError(
                ResponseCode.NO_PERMISSION,
                "recall failed, it needs the message index; set messageIndexEnable=true",
            )

    def _is_writeable_enough(self) -> bool:
        config = self._config
        is_writeable = bool(config.broker_permission & PERM_WRITE)
        return is_writeable or config.allow_recall_when_broker_not_writeable

    def _handle(self, text: str, topic: str) -> RecallHandle:
        try:
            handle = recall_handle.decode(text)
        except ValueError:
            raise _illegal("recall handle is invalid") from None
        if handle.topic != topic:
            raise _illegal("recall failed, topic not match")
        if handle.broker_name != self._config.broker_name:
            raise _illegal(UNAVAILABLE)
        left_ms = handle.due_ms - self._clock.now_ms()
        if not 0 < left_ms < self._store_config.timer_max_delay_sec * 1000:
            raise _illegal("recall failed, timestamp invalid")
        return handle


def _illegal(remark: str) -> RequestRefusedError:
    return RequestRefusedError(ResponseCode.ILLEGAL_OPERATION, remark)


async def _when_acknowledged(
    acknowledged: Awaitable[PutMessageStatus], answer: RemotingCommand
) -> RemotingCommand:
    # A slow flush or a lagging slave doesn't undo the recall: SUCCESS, as in RocketMQ.
    if await acknowledged in (
        PutMessageStatus.PUT_OK,
        PutMessageStatus.FLUSH_DISK_TIMEOUT,
        PutMessageStatus.FLUSH_SLAVE_TIMEOUT,
        PutMessageStatus.SLAVE_NOT_AVAILABLE,
    ):
        return answer
    raise RequestRefusedError(ResponseCode.SYSTEM_ERROR, "recall failed, execute error")
