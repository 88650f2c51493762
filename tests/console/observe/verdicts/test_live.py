"""From a broker with misbehaving clients to its verdicts, with every real part in between.

The broker's clock is the test's: ten minutes pass as quickly as messages can be sent.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker_core.protocol.codes import RequestCode, ResponseCode
from console.gateway.remote.brokers import RemoteBrokers
from console.gateway.remote.gateway import gateway_to
from console.observe.collector.sampler import Moment, Sampler
from console.observe.history import metrics
from console.observe.history.database import SqliteDatabase
from console.observe.history.store import HistoryStore
from console.observe.verdicts.judge import Judge, verdicts_of
from console.observe.verdicts.words import shown
from tests.console.gateway.support import ask
from tests.support.broker import running_broker
from tests.support.client import Client, messages
from tests.support.clock import ManualClock
from tests.support.long_timeouts import PATIENCE_S

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from console.observe.verdicts.judge import Verdict

STEP_MS = 10_000
STEPS = 70
LIMIT = 64 * 1024
WRONG = {
    ("mismatch", metrics.GROUP, "billing"),
    ("queue-stuck", metrics.PROGRESS, "billing@Orders"),
    ("hot-key", metrics.TOPIC, "Orders"),
    ("near-limit", metrics.TOPIC, "Orders"),
    ("clock-off", metrics.BROKER, "0"),
}


async def wrong(one: Client, other: Client, step: int) -> None:
    """Simulate ten seconds of work: one key in most messages, and queue 1 never consumed."""
    await one.heartbeat("one", consumer_groups={"billing": {"Orders": "*"}})
    await other.heartbeat("other", consumer_groups={"billing": {"Orders": "paid"}})
    for number in range(8):
        keys = "vip" if number % 4 else f"order-{step}-{number}"
        answer = await one.send(
            "Orders", queue_id=number % 2, keys=keys, UNIQ_KEY=f"{step}-{number}"
        )
        assert answer.code == ResponseCode.SUCCESS, answer.remark
    if step == STEPS - 12:
        await one.send("Orders", b"x" * (LIMIT - 100), queue_id=0)
    for queue_id, offset in ((0, 4 * step + 4), (1, 0)):
        await one.ask(
            RequestCode.UPDATE_CONSUMER_OFFSET,
            consumerGroup="billing",
            topic="Orders",
            queueId=queue_id,
            commitOffset=offset,
        )


async def verdicts_after(
    tmp_path: Path, steps: int, work: Callable[[Client, Client, int], Awaitable[None]]
) -> dict[tuple[str, str, str], Verdict]:
    """Let clients work for some samples; return the verdicts at the end."""
    clock = ManualClock()
    database = SqliteDatabase(tmp_path / "history.sqlite3")
    store = HistoryStore(database)
    async with running_broker(tmp_path, clock=clock, maxMessageSize=LIMIT) as broker:
        address = f"127.0.0.1:{broker.listen_port}"
        one, other = Client(address), Client(address)
        port = broker.configuration.broker.namesrv_listen_port
        brokers = RemoteBrokers([f"127.0.0.1:{port}"], PATIENCE_S)
        sampler, judge = Sampler(gateway_to(brokers).samples, store), Judge(store)
        for step in range(steps):
            await work(one, other, step)
            clock.advance_ms(STEP_MS)
            now = Moment(clock.now_ms(), round(clock.monotonic() * 1000))
            status = await ask(sampler.take, now)
            assert status.problems == {}
            judge.judge(now.wall_ms, sampler.noticed, sampler.facts)
        await one.shutdown()
        await other.shutdown()
        await ask(brokers.close)
    found = {(each.rule, each.kind, each.name): each for each in verdicts_of(store).verdicts}
    database.close()
    # A flush takes ten seconds here if time advances meanwhile.
    return {key: each for key, each in found.items() if key[0] != "slow-flush"}


async def test_only_client_errors_are_reported(tmp_path: Path) -> None:
    report = await verdicts_after(tmp_path, STEPS, wrong)

    assert report.keys() == WRONG
    stuck = words(report["queue-stuck", metrics.PROGRESS, "billing@Orders"])
    assert "Queue 1 has been stuck" in stuck
    assert "The message is 0-1 at offset 0: 5 B, from 127.0.0.1" in stuck
    assert "Clients: " in words(report["mismatch", metrics.GROUP, "billing"])
    assert report["hot-key", metrics.TOPIC, "Orders"].names == {"key": "vip"}
    assert report["hot-key", metrics.TOPIC, "Orders"].evidence["share"] > 0.7
    assert "127.0.0.1, which sends to" in words(report["clock-off", metrics.BROKER, "0"])


LONG = 130
"""Samples: a trend takes a quarter of an hour."""
GROUPS = ("well", "slow", "quit", "still", "back")
TROUBLED = {
    ("falling-behind", metrics.PROGRESS, "slow@T"),
    ("no-consumer", metrics.GROUP, "quit"),
    ("stopped", metrics.PROGRESS, "still@T"),
    ("rewound", metrics.PROGRESS, "back@T"),
    ("dead-letters", metrics.GROUP, "slow"),
    ("clock-off", metrics.BROKER, "0"),
}


async def troubled(one: Client, other: Client, step: int) -> None:
    """Let groups read a topic, each with a different problem; one has none."""
    present = GROUPS if step < 20 else [name for name in GROUPS if name != "quit"]
    await one.heartbeat(
        "one", consumer_groups={name: {"T": "*"} for name in GROUPS if name != "quit"}
    )
    if "quit" in present:
        await other.heartbeat("other", consumer_groups={"quit": {"T": "*"}})
    elif step == 20:
        await other.ask(
            RequestCode.UNREGISTER_CLIENT, clientID="other", consumerGroup="quit", producerGroup=""
        )
    for _ in range(6):
        await one.send("T")
    end = 6 * (step + 1)
    offsets = {
        "well": end,
        "slow": step + 1,
        "quit": min(end, 120),
        "still": min(end, 360),
        "back": end if step != LONG - 30 else 1,
    }
    for group, offset in offsets.items():
        await one.ask(
            RequestCode.UPDATE_CONSUMER_OFFSET,
            consumerGroup=group,
            topic="T",
            queueId=0,
            commitOffset=offset,
        )
    if step == LONG - 30:
        [message] = messages(await one.pull("T", max_msg_nums=1))
        answer = await one.ask(
            RequestCode.CONSUMER_SEND_MSG_BACK,
            offset=message.commit_log_offset,
            group="slow",
            delayLevel=-1,
            originMsgId="7F01",
            originTopic="T",
            maxReconsumeTimes=16,
        )
        assert answer.code == ResponseCode.SUCCESS, answer.remark


async def test_each_groups_issue_is_its_own(tmp_path: Path) -> None:
    assert (await verdicts_after(tmp_path, LONG, troubled)).keys() == TROUBLED


def words(verdict: Verdict) -> str:
    found = shown(verdict)
    assert found is not None
    return found.evidence
