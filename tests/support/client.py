"""A client based on our RemotingClient, with the requests that tests use most."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from broker_core.formats.record import decode_all
from broker_core.message import properties
from broker_core.protocol import java_json
from broker_core.protocol.codes import RequestCode
from broker_core.protocol.command import RemotingCommand
from broker_core.remoting.client import RemotingClient
from tests.support.long_timeouts import PATIENCE_S

if TYPE_CHECKING:
    from broker_core.message.message import MessageExt
    from broker_core.remoting.dispatch import Handler

SUSPEND = 2
SUBSCRIPTION = 4


class Client:
    """A client of one address."""

    def __init__(self, address: str, handlers: dict[int, Handler] | None = None) -> None:
        self.address = address
        self.remoting = RemotingClient(handlers=handlers or {})

    async def ask(
        self, code: int, body: bytes = b"", /, *, timeout_s: float = PATIENCE_S, **fields: Any
    ) -> RemotingCommand:
        ext_fields = {name: str(value) for name, value in fields.items()}
        request = RemotingCommand.request(code, ext_fields, body)
        return await self.remoting.request(self.address, request, timeout_s)

    async def send(
        self,
        topic: str,
        body: bytes = b"hello",
        *,
        queue_id: int = 0,
        tags: str | None = None,
        keys: str | None = None,
        **more: str,
    ) -> RemotingCommand:
        table = {"KEYS": keys, "TAGS": tags, **more}
        text = properties.encode({name: value for name, value in table.items() if value})
        return await self.ask(
            RequestCode.SEND_MESSAGE_V2,
            body,
            a="pg",
            b=topic,
            c="TBW102",
            d="4",
            e=str(queue_id),
            f="0",
            g="1795252759675",
            h="0",
            i=text,
            j="0",
            k="false",
            m="false",
        )

    async def pull(
        self,
        topic: str,
        queue_offset: int = 0,
        *,
        queue_id: int = 0,
        group: str = "g",
        subscription: str | None = "*",
        expression_type: str = "TAG",
        sub_version: int = 0,
        suspend_ms: int = 0,
        max_msg_nums: int = 32,
        timeout_s: float = PATIENCE_S,
    ) -> RemotingCommand:
        """Pull; without a subscription the broker uses the group's, from its heartbeat."""
        own = SUBSCRIPTION if subscription is not None else 0
        return await self.ask(
            RequestCode.PULL_MESSAGE,
            timeout_s=timeout_s,
            consumerGroup=group,
            topic=topic,
            queueId=queue_id,
            queueOffset=queue_offset,
            maxMsgNums=max_msg_nums,
            sysFlag=own | (SUSPEND if suspend_ms else 0),
            commitOffset=0,
            suspendTimeoutMillis=suspend_ms,
            subscription=subscription or "",
            expressionType=expression_type,
            subVersion=sub_version,
        )

    async def heartbeat(
        self,
        client_id: str = "client-1",
        *,
        consumer_groups: dict[str, dict[str, str]] | None = None,
        producer_groups: tuple[str, ...] = (),
        sub_version: int = 1,
        expression_type: str = "TAG",
    ) -> RemotingCommand:
        """Send a heartbeat; consumer_groups maps each group to its topics' expressions."""
        body = {
            "clientID": client_id,
            "consumerDataSet": [
                {
                    "groupName": group,
                    "consumeType": "CONSUME_PASSIVELY",
                    "messageModel": "CLUSTERING",
                    "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET",
                    "subscriptionDataSet": [
                        {
                            "topic": topic,
                            "subString": expression,
                            "subVersion": sub_version,
                            "expressionType": expression_type,
                        }
                        for topic, expression in topics.items()
                    ],
                }
                for group, topics in (consumer_groups or {}).items()
            ],
            "producerDataSet": [{"groupName": group} for group in producer_groups],
        }
        return await self.ask(RequestCode.HEART_BEAT, java_json.encode(body))

    async def shutdown(self) -> None:
        await self.remoting.shutdown()


def messages(answer: RemotingCommand) -> list[MessageExt]:
    return list(decode_all(answer.body))


def json_body(answer: RemotingCommand) -> Any:
    return java_json.decode(answer.body)
