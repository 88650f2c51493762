"""Epochs and promotion. The request codes are Trebuchet's own."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from broker_core.errors import ReplicationError, RequestRefusedError
from broker_core.ha.divergence import Place, fingerprint
from broker_core.ha.peers import BrokerState, Question
from broker_core.ha.promotion import MasterAliveError
from broker_core.processors.json_body import read_json
from broker_core.protocol.codes import ResponseCode
from broker_core.protocol.headers import fields

if TYPE_CHECKING:
    from broker_core.ha.damage import DamageCheck
    from broker_core.ha.epochs import Epochs
    from broker_core.ha.peers import SetMember
    from broker_core.ha.promotion import Promotion
    from broker_core.ha.role import Role
    from broker_core.protocol.command import RemotingCommand
    from broker_core.remoting.connection import Connection
    from broker_core.store.store_files import StoreFiles

ADDRESS_MAX = 255


class ReplicationAdmin:
    """GET_REPLICATION_STATE, PROMOTE_BROKER. Event loop only."""

    def __init__(
        self,
        own: SetMember,
        role: Role,
        epochs: Epochs,
        files: StoreFiles,
        damage: DamageCheck,
        promotion: Promotion,
    ) -> None:
        self._own = own
        self._role = role
        self._epochs = epochs
        self._files = files
        self._damage = damage
        self._promotion = promotion

    async def state(self, request: RemotingCommand, _: Connection) -> RemotingCommand:
        """GET_REPLICATION_STATE with a Question as body. Answers SUCCESS with a BrokerState.

        If a slave doubts an offset, that offset is checked first. SYSTEM_ERROR for an unreadable
        body or a question about another set.
        """
        question = read_json(request.body, Question, "the question")
        own = self._own
        if question.broker_name != own.broker_name:
            raise RequestRefusedError(
                ResponseCode.SYSTEM_ERROR,
                f"this broker is {own.broker_name}, not {question.broker_name[:ADDRESS_MAX]}",
            )
        serves = question.follows and not self._role.is_slave
        if serves:
            self._know(question.broker_addr, own.broker_addr)
            if question.doubted is not None:
                await self._damage.look(question.doubted)
        role = self._epochs.role
        log = self._files.log
        state = BrokerState(
            cluster_name=own.cluster_name,
            broker_name=own.broker_name,
            broker_id=self._role.broker_id,
            broker_role=self._role.broker_role,
            ha_server_addr=own.ha_server_addr,
            min_offset=log.min_offset,
            max_offset=log.committed_where,
            epochs=self._epochs.entries,
            former_broker_id=None if role is None or self._role.is_slave else role.former_id,
            fingerprints=tuple(
                fingerprint(log, Place(offset, size)) for offset, size in question.places
            ),
            damaged=tuple(known[:2] for known in self._files.quarantine.ranges) if serves else (),
        )
        return request.answer(ResponseCode.SUCCESS, body=msgspec.json.encode(state))

    async def promote(self, request: RemotingCommand, _: Connection) -> RemotingCommand:
        """PROMOTE_BROKER with brokerRole (empty to keep the old master's) and force.

        Answers SUCCESS with epoch, startOffset and brokerRole, or SYSTEM_ERROR with the reason,
        plus masterAlive=true when force would override it.
        """
        header = request.ext_fields
        try:
            promoted = await self._promotion.promote(
                header.get("brokerRole", ""), is_forced=fields.boolean(header, "force")
            )
        except MasterAliveError as error:
            raise RequestRefusedError(
                ResponseCode.SYSTEM_ERROR, str(error), {"masterAlive": "true"}
            ) from error
        except (ReplicationError, OSError) as error:
            raise RequestRefusedError(ResponseCode.SYSTEM_ERROR, str(error)) from error
        return request.answer(
            ResponseCode.SUCCESS,
            None,
            {
                "epoch": str(promoted.epoch),
                "startOffset": str(promoted.start_offset),
                "brokerRole": promoted.broker_role,
            },
        )

    def _know(self, address: str, own: str) -> None:
        host, _, port = address.rpartition(":")
        if address != own and host and port.isascii() and port.isdigit():
            self._epochs.add_peer(address)
