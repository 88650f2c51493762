"""A slave's tables, with the test in the role of its master."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from broker_core.clock import SteadyClock
from broker_core.config.broker import BrokerConfig
from broker_core.config.limits import LIMITS
from broker_core.counted_log import CountedLog
from broker_core.delay.delay_offsets import DelayOffsets
from broker_core.delay.levels import DelayLevels
from broker_core.delay.schedule import ScheduleService
from broker_core.delivery.sql_filter import compile_filter
from broker_core.errors import RemotingConnectError, RemotingError
from broker_core.formats.bloom_filter import BloomFilter
from broker_core.ha.metadata_sync import FollowedTables, MetadataSync
from broker_core.ha.role import Role
from broker_core.metadata.consumer_filters import ConsumerFilters
from broker_core.metadata.consumer_offsets import ConsumerOffsets
from broker_core.metadata.document import Document
from broker_core.metadata.request_modes import RequestModes
from broker_core.metadata.subscription_groups import SubscriptionGroups
from broker_core.metadata.topics import Topics
from broker_core.protocol.codes import RequestCode, ResponseCode
from broker_core.remoting.client import RemotingClient
from tests.support.builders import a_store
from tests.support.faulty_storage import FaultyStorage

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from broker_core.message.data_version import DataVersion
    from broker_core.protocol.command import RemotingCommand
    from tests.support.clock import ManualClock

MASTER, OWN = "10.0.0.1:10911", "10.0.0.2:10911"
VIP = "10.0.0.1:10909"
TOPICS = (
    b'{"dataVersion":{"counter":2,"timestamp":5},"topicConfigTable":{"T":{"topicName":"T",'
    b'"perm":6,"readQueueNums":1,"writeQueueNums":1}}}'
)
GOOD = {
    RequestCode.GET_ALL_TOPIC_CONFIG: TOPICS,
    RequestCode.GET_ALL_CONSUMER_OFFSET: b'{"offsetTable":{"T@g":{0:7}}}',
    RequestCode.GET_ALL_DELAY_OFFSET: b'{"offsetTable":{3:4}}',
    RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: (
        b'{"dataVersion":{"counter":3,"timestamp":5},'
        b'"subscriptionGroupTable":{"g":{"groupName":"g"}}}'
    ),
    RequestCode.GET_BROKER_RUNTIME_INFO: b'{"table":{"commitLogMaxOffset":"4096"}}',
}


class Master(RemotingClient):
    """A client whose only peer is a master played by the test."""

    def __init__(self) -> None:
        super().__init__()
        self.bodies = dict(GOOD)
        self.requests: list[tuple[str, int]] = []
        self.timeouts: set[float] = set()
        self.error: RemotingError | None = None
        """The error that the master answers with."""
        self.is_shut_down = False
        self.has_vip_port = True
        self.deleted_topics: str | None = None
        self.accounts: str | None = None
        self.on_asked: Callable[[], Awaitable[None]] = _nothing

    async def request(
        self, address: str, command: RemotingCommand, timeout_s: float = 5.0
    ) -> RemotingCommand:
        self.requests.append((address, command.code))
        self.timeouts.add(timeout_s)
        if self.error is not None:
            raise self.error
        await self.on_asked()
        if address == VIP and not self.has_vip_port:
            raise RemotingConnectError(f"no connection to {address}: connection refused")
        body = self.bodies.get(RequestCode(command.code))
        if body is None:
            return command.answer(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, "not supported")
        answer = command.answer(ResponseCode.SUCCESS, body=body)
        if self.accounts is not None:
            answer.ext_fields["version"] = self.accounts
        if (
            self.deleted_topics is not None
            and command.ext_fields.get("withDeletedTopics") == "true"
        ):
            answer.ext_fields["deletedTopics"] = self.deleted_topics
        return answer

    async def shutdown(self) -> None:
        self.is_shut_down = True
        await super().shutdown()


async def _nothing() -> None:
    """Nobody listens."""


class Slave:
    """A slave's tables, without the rest of a broker."""

    def __init__(self, clock: ManualClock) -> None:
        storage, config = FaultyStorage(), BrokerConfig()
        directory = Path("/store/config")
        self.role = Role("SLAVE", 1)
        self.master = Master()
        self.deleted: dict[str, int] = {}
        self.log_end = 40
        self.queue_ends: dict[tuple[str, int], int] = {}
        self.accounts: DataVersion | None = None
        self.topics = Topics(config, clock, Document(storage, directory / "topics.json"))
        self.groups = SubscriptionGroups(config, clock, Document(storage, directory / "g.json"))
        self.offsets = ConsumerOffsets(Document(storage, directory / "consumerOffset.json"))
        self.delay_offsets = DelayOffsets(Document(storage, directory / "delayOffset.json"))
        self.filters = ConsumerFilters(
            compile_filter,
            BloomFilter(20, 32),
            lambda: 1,
            clock,
            Document(storage, directory / "consumerFilter.json"),
        )
        self.modes = RequestModes(Document(storage, directory / "modes.json"), LIMITS)
        self.sync = MetadataSync(
            self.role,
            OWN,
            FollowedTables(
                self.topics,
                self.groups,
                self.offsets,
                ScheduleService(
                    DelayLevels.of("1s 5s"),
                    a_store(clock, storage),
                    self.delay_offsets,
                    CountedLog(clock),
                    clock,
                    SteadyClock(clock),
                    flush_interval_ms=10_000,
                ),
                self.filters,
                self.modes,
                self.deleted.update,
                lambda: self.log_end,
                lambda topic, queue_id: self.queue_ends.get((topic, queue_id), 0),
                lambda: self.accounts,
            ),
            self.master,
            clock,
        )

    @property
    def requests(self) -> list[int]:
        """Return the request codes that the master received since the previous call."""
        requests, self.master.requests = self.master.requests, []
        return [code for _, code in requests]
