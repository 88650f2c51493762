"""Queries between the brokers of a set."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, cast

import msgspec
import pytest

from broker_core.errors import RemotingTimeoutError, ReplicationError
from broker_core.ha.divergence import FINGERPRINT_BYTES_MAX, Place
from broker_core.ha.epochs import LogRange
from broker_core.ha.peers import Peers, Question, SetMember, WithoutEpochsError
from broker_core.protocol.bodies.cluster import ClusterInfo
from broker_core.protocol.bodies.route import BrokerData
from broker_core.protocol.codes import RequestCode, ResponseCode

if TYPE_CHECKING:
    from broker_core.protocol.command import RemotingCommand
    from broker_core.remoting.client import RemotingClient

OWN = SetMember("c", "b", "10.0.0.1:10911", "10.0.0.1:10912")
PEER = "10.0.0.2:10911"
STATE = (
    b'{"clusterName":"c","brokerName":"%s","brokerId":0,"brokerRole":"ASYNC_MASTER",'
    b'"haServerAddr":"","minOffset":0,"maxOffset":9,"epochs":%s}'
)


class FakeClient:
    """Answers every request the same way."""

    def __init__(self, code: int = 0, body: bytes = b"", *, is_silent: bool = False) -> None:
        self.closed: list[str] = []
        self.timeouts: list[float] = []
        self.bodies: list[bytes] = []
        self.is_shut_down = False
        self._code = code
        self._body = body
        self._is_silent = is_silent

    async def request(
        self, address: str, command: RemotingCommand, timeout_s: float
    ) -> RemotingCommand:
        self.timeouts.append(timeout_s)
        self.bodies.append(bytes(command.body))
        if self._is_silent:
            raise RemotingTimeoutError(f"{address} does not answer")
        return command.answer(self._code, "because", body=self._body)

    def close(self, address: str) -> None:
        self.closed.append(address)

    async def shutdown(self) -> None:
        self.is_shut_down = True


def peers(client: FakeClient) -> Peers:
    return Peers(cast("RemotingClient", client), OWN, tuple)


async def test_a_peer_reports_its_epochs() -> None:
    body = STATE % (b"b", b'[{"epoch":2,"startOffset":5}]')

    state = await peers(FakeClient(body=body)).state_of(PEER)

    assert (state.newest, state.max_offset, state.is_slave) == (2, 9, False)


async def test_a_silent_connection_is_replaced() -> None:
    client = FakeClient(is_silent=True)

    with pytest.raises(RemotingTimeoutError):
        await peers(client).state_of(PEER)

    assert client.closed == [PEER]


async def test_a_broker_without_epochs_is_recognized() -> None:
    with pytest.raises(WithoutEpochsError):
        await peers(FakeClient(ResponseCode.REQUEST_CODE_NOT_SUPPORTED)).state_of(PEER)


@pytest.mark.parametrize(
    ("code", "body", "reason"),
    [
        (1, b"", "didn't return its epochs: 1 because"),
        (0, b"", "cannot be read"),
        (0, b"[]", "cannot be read"),
        (0, STATE % (b"other", b"[]"), "is other, not b"),
        (0, STATE % (b"b", b'[{"epoch":2,"startOffset":5},{"epoch":1,"startOffset":6}]'), "read"),
    ],
)
async def test_an_invalid_peer_is_rejected(code: int, body: bytes, reason: str) -> None:
    with pytest.raises(ReplicationError, match=reason):
        await peers(FakeClient(code, body)).state_of(PEER)


async def test_unresponsive_brokers_are_left_out() -> None:
    assert await peers(FakeClient(is_silent=True)).states_of([PEER, OWN.broker_addr]) == {}


class ScriptedClient:
    """Answers by address and request code; other addresses are unreachable."""

    def __init__(self, answers: dict[tuple[str, int], tuple[int, bytes]]) -> None:
        self._answers = answers
        self.requests: list[dict[str, str]] = []

    async def request(
        self, address: str, command: RemotingCommand, timeout_s: float
    ) -> RemotingCommand:
        await self.connection(address, timeout_s)
        self.requests.append(dict(command.ext_fields))
        code, body = self._answers[address, command.code]
        return command.answer(code, "because", body=body)

    async def connection(self, address: str, _: float) -> None:
        if address not in {one for one, _ in self._answers}:
            raise RemotingTimeoutError(f"{address} does not answer")


def cluster(**addresses: dict[int, str]) -> ClusterInfo:
    return ClusterInfo(
        broker_addr_table={
            name: BrokerData(cluster="c", broker_name=name, broker_addrs=found)
            for name, found in addresses.items()
        },
        cluster_addr_table={},
    )


def asking(
    client: ScriptedClient, *name_servers: str, embedded: ClusterInfo | None = None
) -> Peers:
    own = None if embedded is None else lambda: embedded
    return Peers(cast("RemotingClient", client), OWN, lambda: name_servers, own)


CLUSTER_INFO = int(RequestCode.GET_BROKER_CLUSTER_INFO)


async def test_name_servers_report_the_sets_members() -> None:
    client = ScriptedClient(
        {
            ("ns1:1", CLUSTER_INFO): (0, cluster(b={0: PEER}, other={0: "o:1"}).encode()),
            ("ns2:1", CLUSTER_INFO): (0, cluster(b={1: "s:1"}).encode()),
            ("ns3:1", CLUSTER_INFO): (0, b"nonsense"),
        }
    )

    found = await asking(client, "gone:1", "ns3:1", "ns1:1", "ns2:1").registered()

    assert found == {0: PEER, 1: "s:1"}


@pytest.mark.parametrize(
    ("embedded", "found"),
    [(None, None), (cluster(b={2: "s:2"}), {2: "s:2"}), (cluster(other={0: "o:1"}), {})],
)
async def test_without_an_answer_only_our_own_name_server_knows(
    embedded: ClusterInfo | None, found: dict[int, str] | None
) -> None:
    assert await asking(ScriptedClient({}), "gone:1", embedded=embedded).registered() == found


async def test_a_set_with_the_same_name_in_another_cluster_is_a_different_set() -> None:
    table = cluster(b={0: PEER})
    table.broker_addr_table["b"].cluster = "x"

    assert await asking(ScriptedClient({}), embedded=table).registered() == {}


async def test_a_broker_that_accepts_connections_is_reachable() -> None:
    found = asking(ScriptedClient({(PEER, 0): (0, b"")}))

    assert await found.is_reachable(PEER)
    assert not await found.is_reachable("gone:1")


async def test_the_original_reports_its_range_in_its_runtime_info() -> None:
    body = b'{"table":{"commitLogMinOffset":"5","commitLogMaxOffset":"90","more":"x"}}'
    client = ScriptedClient({(PEER, int(RequestCode.GET_BROKER_RUNTIME_INFO)): (0, body)})

    assert await asking(client).range_of_original(PEER) == LogRange((), 5, 90)


@pytest.mark.parametrize(
    "body", [b"", b'{"table":{}}', b'{"table":{"commitLogMinOffset":"a","commitLogMaxOffset":"1"}}']
)
async def test_an_original_without_a_reported_range_is_rejected(body: bytes) -> None:
    client = ScriptedClient({(PEER, int(RequestCode.GET_BROKER_RUNTIME_INFO)): (0, body)})

    with pytest.raises(ReplicationError, match="didn't return the range of its log"):
        await asking(client).range_of_original(PEER)


@pytest.mark.parametrize(
    ("code", "size", "is_there"), [(0, 4, True), (0, 3, True), (0, 5, False), (1, 4, False)]
)
async def test_the_originals_records_are_fingerprinted_locally(
    code: int, size: int, is_there: bool
) -> None:
    client = ScriptedClient({(PEER, int(RequestCode.VIEW_MESSAGE_BY_ID)): (code, b"abcd")})

    found = await asking(client).fingerprints_of_original(PEER, [Place(70, size)])

    assert client.requests == [{"offset": "70"}]
    assert found == [hashlib.sha256(b"abcd"[:size]).hexdigest() if is_there else None]


async def test_a_long_record_is_identified_by_its_head() -> None:
    record = bytes(FINGERPRINT_BYTES_MAX) + b"tail"
    client = ScriptedClient({(PEER, int(RequestCode.VIEW_MESSAGE_BY_ID)): (0, record)})

    found = await asking(client).fingerprints_of_original(PEER, [Place(0, len(record) + 9)])

    assert found == [hashlib.sha256(bytes(FINGERPRINT_BYTES_MAX)).hexdigest()]


async def test_a_request_names_its_origin_and_waits_three_seconds() -> None:
    client = FakeClient(body=STATE % (b"b", b"[]"))
    asking_peers = peers(client)

    await asking_peers.state_of(PEER)
    await asking_peers.state_of(PEER, [Place(5, 7)], follows=True, doubted=9)

    origin = {"clusterName": "c", "brokerName": "b", "brokerAddr": OWN.broker_addr}
    assert [json.loads(body) for body in client.bodies] == [
        origin | {"follows": False, "places": [], "doubted": None},
        origin | {"follows": True, "places": [[5, 7]], "doubted": 9},
    ]
    assert client.timeouts == [3.0, 3.0]


def test_a_slave_that_does_not_report_following_does_not_follow() -> None:
    body = b'{"clusterName":"c","brokerName":"b","brokerAddr":"10.0.0.2:10911"}'

    question = msgspec.json.decode(body, type=Question)

    assert (question.follows, question.places, question.doubted) == (False, (), None)


async def test_several_brokers_are_queried_once_each_but_not_this_broker_itself() -> None:
    client = FakeClient(body=STATE % (b"b", b"[]"))

    found = await peers(client).states_of([PEER, OWN.broker_addr, "10.0.0.3:10911", PEER])

    assert list(found) == [PEER, "10.0.0.3:10911"]
    assert found[PEER].newest == 0
    assert found[PEER].log == LogRange((), 0, 9)
    assert len(client.timeouts) == 2


async def test_a_shutdown_ends_the_connections() -> None:
    client = FakeClient()

    await peers(client).shutdown()

    assert client.is_shut_down
