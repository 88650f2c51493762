"""MetadataSync: a slave asks its master for topics, groups and offsets, and takes them over.

Source: broker/slave/SlaveSynchronize.java, BrokerController.java handleSlaveSynchronize (4.9.7).
Differs: filters of consumers come along where the master is one of ours, and a slave says when its
accounts are not its master's; the original knows nothing of either. It asks where the master's log
ends, too, to say how far it is behind.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import msgspec

from broker_core.errors import RemotingConnectError, RemotingError, ReplicationError
from broker_core.ha.master_ends import MasterEnds
from broker_core.message.data_version import DataVersion
from broker_core.message.subscription import SubscriptionGroupConfig
from broker_core.metadata.consumer_filters import StoredFilter, TopicFilters
from broker_core.protocol import java_json
from broker_core.protocol.bodies.registration import (
    DELETED_TOPICS,
    WITH_DELETED_TOPICS,
    TopicConfigSerializeWrapper,
)
from broker_core.protocol.bodies.tables import KVTable
from broker_core.protocol.codes import RequestCode, ResponseCode
from broker_core.protocol.command import RemotingCommand
from broker_core.remoting.client import split_address
from broker_core.service import Service

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from broker_core.clock import Clock
    from broker_core.delay.schedule import ScheduleService
    from broker_core.ha.role import Role
    from broker_core.metadata.consumer_filters import ConsumerFilters
    from broker_core.metadata.consumer_offsets import ConsumerOffsets
    from broker_core.metadata.subscription_groups import SubscriptionGroups
    from broker_core.metadata.topics import Topics
    from broker_core.remoting.client import RemotingClient

logger = logging.getLogger(__name__)

FIRST_S = 3.0
PERIOD_S = 10.0
TIMEOUT_S = 3.0
VIP_PORT_STEP = 2
"""The original asks for topics at the port this far below the master's."""


class _Offsets(msgspec.Struct, rename="camel"):
    offset_table: dict[str, dict[str, int]] | None = None


class _DelayOffsets(msgspec.Struct, rename="camel"):
    offset_table: dict[str, int] | None = None


class _Groups(msgspec.Struct, rename="camel"):
    data_version: DataVersion = msgspec.field(default_factory=DataVersion)
    subscription_group_table: dict[str, SubscriptionGroupConfig] | None = None


class _Filters(msgspec.Struct, rename="camel"):
    filter_data_by_topic: dict[str, TopicFilters] | None = None


@dataclass(frozen=True, slots=True)
class FollowedTables:
    """What a slave has of its master."""

    topics: Topics
    groups: SubscriptionGroups
    offsets: ConsumerOffsets
    schedule: ScheduleService
    filters: ConsumerFilters[Any]
    delete_topics: Callable[[Mapping[str, int]], None]
    """Called with topics that the master has deleted, and where in the log it did."""
    log_end: Callable[[], int]
    accounts_version: Callable[[], DataVersion | None] = lambda: None
    """Of the accounts, None without access control."""


@dataclass(slots=True)
class SyncState:
    """How following goes; times in seconds of the clock that only goes forward."""

    master_addr: str = ""
    last_at: float | None = None
    """When everything was taken over last."""
    failures: dict[str, str] = field(default_factory=dict)
    """What could not be taken over at the last attempt, and why."""
    ends: MasterEnds = field(default_factory=MasterEnds)

    def follow(self, master_addr: str) -> None:
        """Begin anew with another master."""
        self.master_addr = master_addr
        self.last_at = None
        self.failures.clear()
        self.ends.clear()


class MetadataSync(Service):
    """Follows while this broker is a slave and its master is known. Event loop only."""

    def __init__(
        self,
        role: Role,
        own_address: str,
        tables: FollowedTables,
        client: RemotingClient,
        clock: Clock,
    ) -> None:
        super().__init__()
        self.state = SyncState()
        self._role = role
        self._own_address = own_address
        self._tables = tables
        self._client = client
        self._clock = clock
        self._known_topics: set[str] = set()
        self._known_filters: dict[tuple[str, str], StoredFilter] = {}
        self._without_filters = False

    def start(self) -> None:
        """Ask first after three seconds, then every ten."""
        self.spawn_forever(self._clock, self._follow_forever, name="metadata-sync")

    async def shutdown(self) -> None:
        await super().shutdown()
        await self._client.shutdown()

    def follow(self, master_addr: str) -> None:
        """Ask this master from now on; without one, go on with the last that was known."""
        if master_addr and master_addr not in (self.state.master_addr, self._own_address):
            logger.info("metadata follow the master at %s", master_addr)
            self.state.follow(master_addr)
            self._known_topics = set()
            self._known_filters = {}
            self._without_filters = False

    async def sync(self) -> None:
        """Take everything over once; what fails is tried again the next time."""
        if not self._role.is_slave or not self.state.master_addr:
            return
        state = self.state
        for what, take in (
            ("topics", self._take_topics),
            ("consumer offsets", self._take_offsets),
            ("delay offsets", self._take_delay_offsets),
            ("subscription groups", self._take_groups),
            ("consumer filters", self._take_filters),
            ("the version of the accounts", self._compare_accounts),
            ("the ends of the log", self._note_end),
        ):
            await self._try(state, what, take)
        if not state.failures:
            state.last_at = self._clock.monotonic()

    async def _follow_forever(self) -> None:
        await self._clock.sleep(FIRST_S)
        while True:
            await self.sync()
            await self._clock.sleep(PERIOD_S)

    async def _try(
        self, state: SyncState, what: str, take: Callable[[str], Awaitable[None]]
    ) -> None:
        failure = ""
        try:
            await take(state.master_addr)
        except RemotingError as error:
            failure = str(error)
        except ReplicationError as error:
            failure = f"the master at {state.master_addr} refuses: {error}"
        except ValueError as error:
            failure = f"what the master at {state.master_addr} says cannot be read: {error}"
        except Exception as error:
            logger.exception("copying %s from the master failed", what)
            failure = f"this broker failed; see its log: {error!r}"
        if failure and what not in state.failures:
            logger.warning("%s of the master are not taken over, trying again: %s", what, failure)
        elif not failure and what in state.failures:
            logger.info("%s of the master are taken over again", what)
        if failure:
            state.failures[what] = failure
        else:
            state.failures.pop(what, None)

    async def _take_topics(self, master_addr: str) -> None:
        # What this log has before the master is asked is older than what the answer says.
        log_end = self._tables.log_end()
        answer = await self._topics_of(master_addr)
        wrapper = TopicConfigSerializeWrapper.decode(_body_of(answer))
        text = answer.ext_fields.get(DELETED_TOPICS)
        told = {} if text is None else java_json.decode_as(text, dict[str, int])
        if not self._role.is_slave:
            return
        topics = self._tables.topics
        topics.follow(wrapper.data_version, wrapper.topic_config_table)
        # Only what this master had before: another master's table says nothing of deletions.
        gone = self._known_topics - wrapper.topic_config_table.keys()
        for topic in gone:
            if not topics.is_system(topic):
                logger.info("topic deleted by the master: topic=%s", topic)
        # An original master does not say where its deleted topics ended.
        ends = dict.fromkeys(gone, log_end) | told
        self._tables.delete_topics(
            {topic: ends[topic] for topic in ends if not topics.is_system(topic)}
        )
        self._known_topics = set(wrapper.topic_config_table)

    async def _topics_of(self, master_addr: str) -> RemotingCommand:
        """Ask as the original does, at the VIP port; at the other one if nobody listens there."""
        host, port = split_address(master_addr)
        vip_address = f"{f'[{host}]' if ':' in host else host}:{port - VIP_PORT_STEP}"
        fields = {WITH_DELETED_TOPICS: "true"}
        code = RequestCode.GET_ALL_TOPIC_CONFIG
        try:
            request = RemotingCommand.request(code, dict(fields))
            return await self._client.request(vip_address, request, TIMEOUT_S)
        except RemotingConnectError:
            request = RemotingCommand.request(code, dict(fields))
            return await self._client.request(master_addr, request, TIMEOUT_S)

    async def _take_offsets(self, master_addr: str) -> None:
        body = await self._ask(master_addr, RequestCode.GET_ALL_CONSUMER_OFFSET)
        table = java_json.decode_as(body, _Offsets).offset_table or {}
        offsets = {
            pair: {int(queue_id): offset for queue_id, offset in queues.items()}
            for pair, queues in table.items()
        }
        if self._role.is_slave:
            self._tables.offsets.follow(offsets)

    async def _take_delay_offsets(self, master_addr: str) -> None:
        body = await self._ask(master_addr, RequestCode.GET_ALL_DELAY_OFFSET)
        table = java_json.decode_as(body, _DelayOffsets).offset_table or {}
        if self._role.is_slave:
            await self._tables.schedule.follow(
                {int(level): offset for level, offset in table.items()}
            )

    async def _take_groups(self, master_addr: str) -> None:
        body = await self._ask(master_addr, RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG)
        groups = java_json.decode_as(body, _Groups)
        if self._role.is_slave:
            self._tables.groups.follow(groups.data_version, groups.subscription_group_table or {})

    async def _take_filters(self, master_addr: str) -> None:
        if self._without_filters:
            return
        request = RemotingCommand.request(RequestCode.GET_ALL_CONSUMER_FILTER)
        answer = await self._client.request(master_addr, request, TIMEOUT_S)
        if answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
            self._without_filters = True
            return
        topics = java_json.decode_as(_body_of(answer), _Filters).filter_data_by_topic or {}
        if not self._role.is_slave:
            return
        filters = {
            (one.topic, one.consumer_group): one
            for topic in topics.values()
            for one in topic.group_filter_data.values()
        }
        self._tables.filters.follow(topics)
        # As with topics: only what this master had before can have been deleted there.
        gone = [one for pair, one in self._known_filters.items() if pair not in filters]
        self._tables.filters.follow_deletions(gone)
        self._known_filters = filters

    async def _compare_accounts(self, master_addr: str) -> None:
        own = self._tables.accounts_version()
        if own is None or not own.counter:
            return  # Accounts that were only ever edited by hand have no version.
        request = RemotingCommand.request(RequestCode.GET_BROKER_CLUSTER_ACL_INFO)
        answer = await self._client.request(master_addr, request, TIMEOUT_S)
        _body_of(answer)
        text = answer.ext_fields.get("version", "{}")
        theirs = java_json.decode_as(text, DataVersion)
        if theirs.counter and theirs != own:
            raise ReplicationError(
                f"its accounts have version {theirs.counter}, this broker's {own.counter}; copy "
                "the master's plain_acl.yml here"
            )

    async def _note_end(self, master_addr: str) -> None:
        body = await self._ask(master_addr, RequestCode.GET_BROKER_RUNTIME_INFO)
        table = java_json.decode_as(body, KVTable).table
        end = table.get("commitLogMaxOffset", "")
        if not (end.isascii() and end.isdigit()):
            raise ValueError(f"commitLogMaxOffset is {end[:20]!r}")
        if self.state.master_addr == master_addr:
            self.state.ends.note(self._clock.monotonic(), int(end))

    async def _ask(self, address: str, code: RequestCode) -> bytes:
        return _body_of(
            await self._client.request(address, RemotingCommand.request(code), TIMEOUT_S)
        )


def _body_of(answer: RemotingCommand) -> bytes:
    if answer.code != ResponseCode.SUCCESS:
        raise ReplicationError(f"code {answer.code} {answer.remark or ''}".rstrip())
    return bytes(answer.body)
