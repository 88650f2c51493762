"""Peers: requests between brokers of one set about their roles, epochs and logs.

GET_REPLICATION_STATE is a Trebuchet extension. A real RocketMQ doesn't support it; for such a
master the log range is read from its runtime info, and a record with VIEW_MESSAGE_BY_ID.
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
"""The maximum number of records in one request."""
ASK_TIMEOUT_S = 3.0

Text = Annotated[str, msgspec.Meta(max_length=255)]


class Question(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """The body of GET_REPLICATION_STATE."""

    cluster_name: Text
    broker_name: Text
    broker_addr: Text
    """The asking broker's own address."""
    follows: bool = False
    """Whether it asks as a slave: its master can send requests to it from then on."""
    places: Annotated[tuple[tuple[Natural, Natural], ...], msgspec.Meta(max_length=PLACES_MAX)] = ()
    """Offsets and sizes of records whose fingerprints are requested."""
    doubted: Natural | None = None
    """Where the slave received an invalid record: the master checks its own log for damage."""


class BrokerState(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """The body of the answer."""

    cluster_name: str
    broker_name: str
    broker_id: int
    broker_role: str
    ha_server_addr: str
    min_offset: Natural
    max_offset: Natural
    epochs: tuple[Epoch, ...]
    former_broker_id: int | None = None
    """A promoted master's previous ID, which is now free."""
    fingerprints: tuple[str | None, ...] = ()
    damaged: tuple[tuple[Natural, Natural], ...] = ()
    """Sent to slaves: ranges of the log, [from, to), without readable records."""

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
    """This broker's identity in its set."""

    cluster_name: str
    broker_name: str
    broker_addr: str
    """The address for clients."""
    ha_server_addr: str


class WithoutEpochsError(ReplicationError):
    """The peer is a broker without support for epochs, such as a real RocketMQ."""


class Peers:
    """Sends requests to other brokers of this broker's set, and finds them with name servers.

    Event loop only.
    """

    def __init__(
        self,
        client: RemotingClient,
        own: SetMember,
        name_servers: Callable[[], Sequence[str]],
        embedded: Callable[[], ClusterInfo] | None = None,
    ) -> None:
        """`embedded` returns the brokers listed by the name server in this process, if any."""
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
        """Return the state of a broker; follows: whether to ask as its slave.

        Raises:
            WithoutEpochsError: it doesn't support the request.
            ReplicationError: it refuses, belongs to another set, or sends an invalid answer.
            RemotingError: the request failed.
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
            # After a partition the kernel may wait for minutes before it retransmits on this
            # connection.
            self._client.close(address)
            raise
        if answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
            raise WithoutEpochsError(f"the broker at {address} doesn't support epochs")
        if answer.code != ResponseCode.SUCCESS:
            raise ReplicationError(
                f"the broker at {address} didn't return its epochs: {answer.code} {answer.remark}"
            )
        try:
            state = msgspec.json.decode(answer.body, type=BrokerState)
            check_order(state.epochs)
        except (ValueError, RecursionError) as error:
            raise ReplicationError(
                f"the epochs of the broker at {address} cannot be read: {error}"
            ) from error
        if state.broker_name != self._own.broker_name:
            raise ReplicationError(
                f"the broker at {address} is {state.broker_name}, not {self._own.broker_name}"
            )
        return state

    async def states_of(self, addresses: Iterable[str]) -> dict[str, BrokerState]:
        """Ask several brokers in parallel; omit brokers that don't answer."""
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
        """Return the brokers of this set by ID, from the name servers; None if no name server
        answers.
        """
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
        """Return whether the address accepts connections."""
        try:
            await self._client.connection(address, ASK_TIMEOUT_S)
        except RemotingError:
            return False
        return True

    async def range_of_original(self, address: str) -> LogRange:
        """Return the log range of a broker without epochs.

        Raises:
            ReplicationError: its runtime info doesn't contain it.
            RemotingError: the request failed.
        """
        request = RemotingCommand.request(RequestCode.GET_BROKER_RUNTIME_INFO)
        answer = await self._client.request(address, request, ASK_TIMEOUT_S)
        try:
            table = java_json.decode_as(answer.body, KVTable).table
            return LogRange((), int(table["commitLogMinOffset"]), int(table["commitLogMaxOffset"]))
        except (KeyError, ValueError) as error:
            raise ReplicationError(
                f"the broker at {address} didn't return the range of its log: {error!r}"
            ) from error

    async def fingerprints_of_original(
        self, address: str, places: Sequence[Place]
    ) -> list[str | None]:
        """Return fingerprints of records of a broker without epochs, None for records it lacks."""
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
