"""Peers: what brokers of one set ask each other about their roles, epochs and logs.

GET_REPLICATION_STATE is ours. A real RocketMQ does not know it; of such a master the range of the
log is known by its runtime info, and a record by VIEW_MESSAGE_BY_ID.
"""

from __future__ import annotations

import asyncio
import hashlib
from typing import TYPE_CHECKING, Annotated, NamedTuple

import msgspec

from broker_core.errors import RemotingError, RemotingTimeoutError, ReplicationError
from broker_core.ha.divergence import FINGERPRINT_BYTES_MAX, Place
from broker_core.ha.epochs import FIRST_EPOCH, Epoch, LogRange, Natural, check_order
from broker_core.ha.role import SLAVE
from broker_core.isolation import isolated
from broker_core.protocol import java_json
from broker_core.protocol.bodies.cluster import ClusterInfo
from broker_core.protocol.bodies.tables import KVTable
from broker_core.protocol.codes import RequestCode, ResponseCode
from broker_core.protocol.command import RemotingCommand

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from broker_core.remoting.client import RemotingClient

PLACES_MAX = 64
"""So many records one question may name."""
ASK_TIMEOUT_S = 3.0

Text = Annotated[str, msgspec.Meta(max_length=255)]


class Question(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """The body of GET_REPLICATION_STATE."""

    cluster_name: Text
    broker_name: Text
    broker_addr: Text
    """The asking broker's own address."""
    follows: bool = False
    """Whether it asks as a slave: its master can ask it in turn from then on."""
    places: Annotated[tuple[tuple[Natural, Natural], ...], msgspec.Meta(max_length=PLACES_MAX)] = ()
    """Offset and size of records whose fingerprints are asked for."""
    doubted: Natural | None = None
    """Where what the slave got is no record: the master looks whether its own log is damaged."""


class BrokerState(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """The body of its answer."""

    cluster_name: str
    broker_name: str
    broker_id: int
    broker_role: str
    ha_server_addr: str
    min_offset: Natural
    max_offset: Natural
    epochs: tuple[Epoch, ...]
    former_broker_id: int | None = None
    """Of a promoted master: its id before, which is free now."""
    fingerprints: tuple[str | None, ...] = ()
    damaged: tuple[tuple[Natural, Natural], ...] = ()
    """Told to slaves: ranges of the log, [from, to), that hold no readable record."""

    @property
    def is_slave(self) -> bool:
        return self.broker_role == SLAVE

    @property
    def newest(self) -> int:
        """The number of its newest epoch."""
        return self.epochs[-1].epoch if self.epochs else FIRST_EPOCH

    @property
    def log(self) -> LogRange:
        return LogRange(self.epochs, self.min_offset, self.max_offset)


class SetMember(NamedTuple):
    """Who this broker is in its set."""

    cluster_name: str
    broker_name: str
    broker_addr: str
    """Where it serves clients."""
    ha_server_addr: str


class WithoutEpochsError(ReplicationError):
    """The peer is a broker that knows no epochs, such as a real RocketMQ."""


class Peers:
    """Asks other brokers of this broker's set, and name servers for them. Event loop only."""

    def __init__(
        self,
        client: RemotingClient,
        own: SetMember,
        name_servers: Callable[[], Sequence[str]],
        embedded: Callable[[], ClusterInfo] | None = None,
    ) -> None:
        """`embedded` returns what the name server in this process knows, if there is one."""
        self._client = client
        self._own = own
        self._name_servers = name_servers
        self._embedded = embedded

    async def shutdown(self) -> None:
        await self._client.shutdown()

    async def state_of(
        self,
        address: str,
        places: Sequence[Place] = (),
        *,
        follows: bool = False,
        doubted: int | None = None,
    ) -> BrokerState:
        """Ask a broker, as one that follows it, or not.

        Raises:
            WithoutEpochsError: it does not know the question.
            ReplicationError: it refuses, belongs to another set, or answers what makes no sense.
            RemotingError: it cannot be asked.
        """
        question = Question(
            cluster_name=self._own.cluster_name,
            broker_name=self._own.broker_name,
            broker_addr=self._own.broker_addr,
            follows=follows,
            places=tuple((place.commit_log_offset, place.size) for place in places),
            doubted=doubted,
        )
        body = msgspec.json.encode(question)
        request = RemotingCommand.request(RequestCode.GET_REPLICATION_STATE, body=body)
        try:
            answer = await self._client.request(address, request, ASK_TIMEOUT_S)
        except RemotingTimeoutError:
            # After a partition the kernel may wait minutes before it sends here again.
            self._client.close(address)
            raise
        if answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
            raise WithoutEpochsError(f"the broker at {address} knows no epochs")
        if answer.code != ResponseCode.SUCCESS:
            raise ReplicationError(
                f"the broker at {address} does not tell its epochs: {answer.code} {answer.remark}"
            )
        try:
            state = msgspec.json.decode(answer.body, type=BrokerState)
            check_order(state.epochs)
        except (ValueError, RecursionError) as error:
            raise ReplicationError(
                f"the broker at {address} tells its epochs in a way that cannot be read: {error}"
            ) from error
        if state.broker_name != self._own.broker_name:
            raise ReplicationError(
                f"the broker at {address} is {state.broker_name}, not {self._own.broker_name}"
            )
        return state

    async def states_of(self, addresses: Iterable[str]) -> dict[str, BrokerState]:
        """Ask several at once; who does not answer is left out."""
        asked = [
            address for address in dict.fromkeys(addresses) if address != self._own.broker_addr
        ]

        async def ask(address: str) -> BrokerState | None:
            with isolated("asking a broker of the set", address):
                try:
                    return await self.state_of(address)
                except (RemotingError, ReplicationError):
                    return None
            return None

        states = await asyncio.gather(*(ask(address) for address in asked))
        return {
            address: state
            for address, state in zip(asked, states, strict=True)
            if state is not None
        }

    async def registered(self) -> Mapping[int, str] | None:
        """Return the brokers of this set by id, as name servers know them; None if none answers."""
        found: dict[int, str] = {}
        is_known = self._embedded is not None
        tables = [] if self._embedded is None else [self._embedded()]
        for address in self._name_servers():
            try:
                answer = await self._client.request(
                    address,
                    RemotingCommand.request(RequestCode.GET_BROKER_CLUSTER_INFO),
                    ASK_TIMEOUT_S,
                )
                tables.append(ClusterInfo.decode(answer.body))
            except (RemotingError, ValueError):
                continue
            is_known = True
        for table in tables:
            data = table.broker_addr_table.get(self._own.broker_name)
            if data is not None and data.cluster == self._own.cluster_name:
                found.update(data.broker_addrs)
        return found if is_known else None

    async def is_reachable(self, address: str) -> bool:
        """Tell whether somebody takes connections there."""
        try:
            await self._client.connection(address, ASK_TIMEOUT_S)
        except RemotingError:
            return False
        return True

    async def range_of_original(self, address: str) -> LogRange:
        """Return the range of the log of a broker without epochs.

        Raises:
            ReplicationError: its runtime info does not say it.
            RemotingError: it cannot be asked.
        """
        request = RemotingCommand.request(RequestCode.GET_BROKER_RUNTIME_INFO)
        answer = await self._client.request(address, request, ASK_TIMEOUT_S)
        try:
            table = java_json.decode_as(answer.body, KVTable).table
            return LogRange((), int(table["commitLogMinOffset"]), int(table["commitLogMaxOffset"]))
        except (KeyError, ValueError) as error:
            raise ReplicationError(
                f"the broker at {address} does not say where its log begins and ends: {error!r}"
            ) from error

    async def fingerprints_of_original(
        self, address: str, places: Sequence[Place]
    ) -> list[str | None]:
        """Return the fingerprints of records of a broker without epochs, None for what it lacks."""
        found: list[str | None] = []
        for place in places:
            request = RemotingCommand.request(
                RequestCode.VIEW_MESSAGE_BY_ID, {"offset": str(place.commit_log_offset)}
            )
            answer = await self._client.request(address, request, ASK_TIMEOUT_S)
            size = min(place.size, FINGERPRINT_BYTES_MAX)
            is_there = answer.code == ResponseCode.SUCCESS and len(answer.body) >= size
            found.append(hashlib.sha256(answer.body[:size]).hexdigest() if is_there else None)
        return found
