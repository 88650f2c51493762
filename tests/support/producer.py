"""A transactional producer based on our RemotingClient."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from broker_core.message import properties
from broker_core.message.ids import parse_offset_msg_id
from broker_core.protocol.codes import RequestCode
from tests.support.client import Client

if TYPE_CHECKING:
    from broker_core.protocol.command import RemotingCommand
    from broker_core.remoting.connection import Connection

COMMIT, ROLLBACK, UNKNOWN = 8, 12, 0
PREPARED = 4


class Producer(Client):
    """A transactional producer of a group that records the checks it receives."""

    def __init__(self, address: str, group: str = "pg") -> None:
        super().__init__(address, {RequestCode.CHECK_TRANSACTION_STATE: self._asked})
        self.group = group
        self.questions: asyncio.Queue[RemotingCommand] = asyncio.Queue()

    def _asked(self, command: RemotingCommand, _: Connection) -> None:
        self.questions.put_nowait(command)

    async def question(self) -> RemotingCommand:
        return await asyncio.wait_for(self.questions.get(), 5.0)

    async def join(self) -> None:
        await self.heartbeat(f"client-of-{self.group}", producer_groups=(self.group,))

    async def half(self, body: bytes = b"half", topic: str = "T", **more: str) -> RemotingCommand:
        table = {"TRAN_MSG": "true", "PGROUP": self.group, "UNIQ_KEY": "U1", "WAIT": "true", **more}
        return await self.ask(
            RequestCode.SEND_MESSAGE_V2,
            body,
            a=self.group,
            b=topic,
            c="TBW102",
            d="4",
            e="0",
            f=str(PREPARED),
            g="1795252759675",
            h="0",
            i=properties.encode(table),
            j="0",
            k="false",
            m="false",
        )

    async def end(self, sent: RemotingCommand, outcome: int, **more: Any) -> RemotingCommand:
        place = parse_offset_msg_id(sent.ext_fields["msgId"])
        assert place is not None
        return await self.ask(
            RequestCode.END_TRANSACTION,
            **{
                "producerGroup": self.group,
                "tranStateTableOffset": sent.ext_fields["queueOffset"],
                "commitLogOffset": place.commit_log_offset,
                "commitOrRollback": outcome,
                "fromTransactionCheck": "false",
                "msgId": "U1",
                "transactionId": "U1",
                **more,
            },
        )

    async def answer(self, question: RemotingCommand, outcome: int) -> RemotingCommand:
        return await self.ask(
            RequestCode.END_TRANSACTION,
            producerGroup=self.group,
            tranStateTableOffset=question.ext_fields["tranStateTableOffset"],
            commitLogOffset=question.ext_fields["commitLogOffset"],
            commitOrRollback=outcome,
            fromTransactionCheck="true",
            msgId="U1",
        )
