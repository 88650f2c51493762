"""Our slave and a real one: the same answers, and each follows the other's master."""

from __future__ import annotations

import json
import os
import signal
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from broker_core.protocol import java_json
from broker_core.protocol.codes import RequestCode
from tests.conftest import require_java
from tests.interop import request_cases, request_parts
from tests.interop.rows import Rows
from tests.support.broker_process import BrokerProcess
from tests.support.peer import Peer
from tests.support.raw_remoting import PULL_MESSAGE, RawClient, pull_fields, send_fields
from tests.support.waiting import until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.support.raw_remoting import Answer

    AnyBroker = BrokerProcess | Peer

pytestmark = pytest.mark.interop

FOLLOWED_SECONDS = 120.0
"""A real slave waits five seconds before its first report, and ten between its queries."""
LED_GROUP = {
    "brokerId": 3,
    "consumeEnable": True,
    "groupName": "led",
    "whichBrokerWhenConsumeSlowly": 7,
}
KEYS = {
    "maxMessageSize": 65_536,
    "enablePropertyFilter": "true",
    "messageDelayLevel": " ".join(["1s", *["2h"] * 17]),
    "transactionCheckInterval": 3_600_000,
    "mappedFileSizeCommitLog": 16 << 20,
}
# Everything that a master's consumers read is no longer in memory.
MASTER_KEYS = {**KEYS, "accessMessageInMemoryMaxRatio": 0, "slaveReadEnable": "true"}
FILES = ("topics", "subscriptionGroup", "consumerOffset", "delayOffset")
DIFFERS = {
    "delay offsets": "ours says how far delivery is at its master",
    "runtime info": "ours says how far delivery is at its master",
    "count BROKER_PUT_NUMS": "ours counts from its start, the original from the first message",
}
"""Rows in which our slave deliberately answers differently, although a master doesn't."""
ALIKE = frozenset(
    {
        "commit beyond the end",
        "send an invalid batch",
        "return a half message",
        "roll it back after the commit",
        "resume a message that isn't a half message",
        "number of delivered messages",
    }
)
"""Rows in which slaves give the same answer, although masters don't."""
ROWS = [case for case in request_cases.CASES if not case.name_server]


@dataclass(frozen=True, slots=True)
class Sets:
    """Two sets of brokers: ours and RocketMQ's, with one slave of each kind in each."""

    our_master: BrokerProcess
    our_slave: BrokerProcess
    their_slave_of_ours: Peer
    their_master: Peer
    their_slave: Peer
    our_slave_of_theirs: BrokerProcess
    answers: dict[str, list[tuple[Answer, Any]]]
    """Answers of our slave and of RocketMQ's to each row."""
    files: dict[str, dict[str, bytes]]
    """The configuration files of each broker, before any row was sent to a slave."""


def slave_keys(namesrv: str, broker_id: int) -> dict[str, object]:
    return {
        **KEYS,
        "namesrvAddr": namesrv,
        "brokerRole": "SLAVE",
        "brokerId": broker_id,
        "slaveReadEnable": "true",
    }


def runtime_info(broker: AnyBroker) -> dict[str, str]:
    with RawClient(broker.port) as client:
        answer = client.ask(RequestCode.GET_BROKER_RUNTIME_INFO)
    # In its first second RocketMQ has no statistics yet, and fails.
    return java_json.decode(answer.body)["table"] if answer.code == 0 else {}


def table_of(broker: AnyBroker, code: int, name: str) -> Any:
    with RawClient(broker.port) as client:
        return java_json.decode(client.ask(code).body)[name]


def followed(broker: AnyBroker) -> list[Any]:
    """Return the data that a slave has from its master."""
    return [
        runtime_info(broker).get("commitLogMaxOffset"),
        table_of(broker, RequestCode.GET_ALL_CONSUMER_OFFSET, "offsetTable"),
        table_of(broker, RequestCode.GET_ALL_TOPIC_CONFIG, "dataVersion"),
        table_of(broker, RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, "dataVersion"),
    ]


def files_of(broker: AnyBroker) -> dict[str, bytes]:
    directory = broker.store / "config"
    found = {name: directory / f"{name}.json" for name in FILES}
    return {name: file.read_bytes() for name, file in found.items() if file.exists()}


def are_written(master: AnyBroker, slaves: list[AnyBroker]) -> bool:
    there = {name: java_json.decode(text) for name, text in files_of(master).items()}
    return set(there) == set(FILES) and all(
        {name: java_json.decode(text) for name, text in files_of(slave).items()} == there
        for slave in slaves
    )


@contextmanager
def stopped(broker: AnyBroker) -> Iterator[None]:
    """Suspend a broker while the block runs; its connections stay open."""
    os.kill(broker.pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(broker.pid, signal.SIGCONT)


def prepare(master: AnyBroker) -> None:
    """Send a message for the group whose consumers are redirected, and configure it."""
    with RawClient(master.port) as client:
        group = json.dumps(LED_GROUP).encode()
        code = RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP
        assert client.ask(code, {}, group).code == 0
        fields = send_fields(request_parts.TOPIC, queue_id=1)
        assert client.ask(RequestCode.SEND_MESSAGE, fields, b"x").code == 0


@pytest.fixture(scope="module")
def sets(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sets]:
    require_java()

    def directory(name: str) -> Path:
        return tmp_path_factory.mktemp(name)

    with ExitStack() as stack:

        def ours(name: str, keys: dict[str, object]) -> BrokerProcess:
            broker = BrokerProcess(directory(name), **keys)
            stack.callback(broker.stop)
            broker.start()
            return broker

        def theirs(name: str, keys: dict[str, object]) -> Peer:
            return stack.enter_context(Peer("4.9.7", directory(name), **keys))

        our_master = ours("our-master", MASTER_KEYS)
        their_master = theirs("their-master", MASTER_KEYS)
        our_slave = ours("our-slave", slave_keys(our_master.namesrv, 1))
        their_slave = theirs("their-slave", slave_keys(their_master.namesrv, 1))
        our_second = ours("our-second", slave_keys(their_master.namesrv, 2))
        their_second = theirs("their-second", slave_keys(our_master.namesrv, 2))
        our_rows = stack.enter_context(Rows(our_master))
        their_rows = stack.enter_context(Rows(their_master))
        for master in (our_master, their_master):
            prepare(master)
        of_master: list[tuple[AnyBroker, list[AnyBroker]]] = [
            (our_master, [our_slave, their_second]),
            (their_master, [their_slave, our_second]),
        ]
        for rows in (our_rows, their_rows):
            rows.wait_for_delivery()
        for master, slaves in of_master:
            until(
                lambda master=master, slaves=slaves: all(  # type: ignore[misc]
                    followed(slave) == followed(master) for slave in slaves
                ),
                "the slaves to catch up with their master",
                seconds=FOLLOWED_SECONDS,
            )
            until(
                lambda master=master, slaves=slaves: are_written(master, slaves),  # type: ignore[misc]
                "the slaves' files to equal their master's",
                seconds=FOLLOWED_SECONDS,
            )
        files = {
            "our master": files_of(our_master),
            "our slave": files_of(our_slave),
            "their slave of ours": files_of(their_second),
            "their master": files_of(their_master),
            "our slave of theirs": files_of(our_second),
        }
        both = [
            stack.enter_context(our_rows.of_slave(our_slave)),
            stack.enter_context(their_rows.of_slave(their_slave)),
        ]
        # Rows change a slave's tables and read them; its next fetch from its master, every ten
        # seconds, would restore the old ones in between.
        with stopped(our_master), stopped(their_master):
            answers = {case.name: [each.ask(case) for each in both] for case in ROWS}
        yield Sets(
            our_master,
            our_slave,
            their_second,
            their_master,
            their_slave,
            our_second,
            answers,
            files,
        )


@pytest.mark.parametrize("case", ROWS, ids=lambda case: case.name)
def test_a_slave_answers_like_a_real_one(sets: Sets, case: request_parts.Case) -> None:
    (our_answer, ours), (their_answer, theirs) = sets.answers[case.name]
    reason = DIFFERS.get(case.name) or (case.name not in ALIKE and case.differs)

    remarks = f"theirs: {their_answer.remark}\nours: {our_answer.remark}"
    if reason:
        assert ours != theirs, f"no longer true: {reason}\n{remarks}"
    else:
        assert ours == theirs, remarks


def pulled(broker: AnyBroker, queue_offset: int, **more: str) -> tuple[int, dict[str, str]]:
    fields = pull_fields(request_parts.TOPIC, 1, queue_offset, max_msg_nums=1)
    with RawClient(broker.port) as client:
        answer = client.ask(PULL_MESSAGE, {**fields, "consumerGroup": "led", **more})
    return answer.code, answer.fields


def configure(brokers: list[AnyBroker], line: bytes) -> None:
    for broker in brokers:
        with RawClient(broker.port) as client:
            assert client.ask(RequestCode.UPDATE_BROKER_CONFIG, {}, line).code == 0


def test_consumers_are_redirected_like_by_real_brokers(sets: Sets) -> None:
    masters: list[AnyBroker] = [sets.our_master, sets.their_master]
    slaves: list[AnyBroker] = [sets.our_slave, sets.their_slave]

    for slow in masters:
        assert pulled(slow, 0)[1]["suggestWhichBrokerId"] == "7"
    for quick in slaves:
        assert pulled(quick, 0)[1]["suggestWhichBrokerId"] == "3"
    assert pulled(slaves[0], 99) == pulled(slaves[1], 99)
    assert pulled(slaves[0], 99)[1]["suggestWhichBrokerId"] == "3"

    configure(slaves, b"slaveReadEnable=false\n")
    assert pulled(slaves[0], 0) == pulled(slaves[1], 0)
    assert pulled(slaves[0], 0)[1]["suggestWhichBrokerId"] == "0"
    assert pulled(slaves[0], 99) == pulled(slaves[1], 99)

    configure(slaves, b"offsetCheckInSlave=true\n")
    assert pulled(slaves[0], 99) == pulled(slaves[1], 99)


def test_neither_slave_commits_a_pulls_offset(sets: Sets) -> None:
    for slave in (sets.our_slave, sets.their_slave):
        # Bits: commit, and the subscription comes with the request.
        pulled(slave, 0, sysFlag="5", commitOffset="1")
        with RawClient(slave.port) as client:
            fields = {"consumerGroup": "led", "topic": request_parts.TOPIC, "queueId": "1"}
            answer = client.ask(RequestCode.QUERY_CONSUMER_OFFSET, fields)
        assert (answer.code, answer.fields.get("offset")) == (0, "0"), answer


def test_our_slaves_files_equal_our_masters(sets: Sets) -> None:
    assert sets.files["our slave"] == sets.files["our master"]


@pytest.mark.parametrize(
    ("slave", "master"),
    [("our slave of theirs", "their master"), ("their slave of ours", "our master")],
)
def test_a_slaves_files_have_the_same_content_as_those_of_the_other_kind_of_master(
    sets: Sets, slave: str, master: str
) -> None:
    """Ours sort their keys; RocketMQ's are in the order of a hash table."""
    of_slave, of_master = (
        {name: java_json.decode(text) for name, text in sets.files[broker].items()}
        for broker in (slave, master)
    )

    assert of_slave == of_master


def test_name_servers_show_both_sets_the_same(sets: Sets) -> None:
    def shown(master: AnyBroker) -> Any:
        with RawClient(master.namesrv_port) as client:
            info = java_json.decode(client.ask(RequestCode.GET_BROKER_CLUSTER_INFO).body)
        return info["brokerAddrTable"]["broker-a"]

    for master, slaves in (
        (sets.our_master, (sets.our_slave, sets.their_slave_of_ours)),
        (sets.their_master, (sets.their_slave, sets.our_slave_of_theirs)),
    ):
        assert shown(master) == {
            "brokerAddrs": {
                "0": f"127.0.0.1:{master.port}",
                "1": f"127.0.0.1:{slaves[0].port}",
                "2": f"127.0.0.1:{slaves[1].port}",
            },
            "brokerName": "broker-a",
            "cluster": "DefaultCluster",
        }
