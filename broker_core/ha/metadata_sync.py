"""MetadataSync: copies topics, groups and offsets from the master to a slave.

Source: broker/slave/SlaveSynchronize.java, BrokerController.java handleSlaveSynchronize (4.9.7).
Request modes are copied if the master has them, as between brokers of 5.3.3.

Differs: consumer filters are copied if the master runs Trebuchet, and a slave reports when its
accounts differ from its master's; RocketMQ does neither. The slave also asks where the master's
log ends, to report how far it is behind.
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
from broker_core.metadata.consumer_offsets import records_needed
from broker_core.metadata.request_modes import RequestMode
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
    from broker_core.metadata.request_modes import RequestModes
    from broker_core.metadata.subscription_groups import SubscriptionGroups
    from broker_core.metadata.topics import Topics
    from broker_core.remoting.client import RemotingClient

logger = logging.getLogger(__name__)

FIRST_S = 3.0
PERIOD_S = 10.0
TIMEOUT_S = 3.0
REPLICATED_S = 2.0
REPLICATED_STEP_S = 0.02
VIP_PORT_STEP = 2
"""RocketMQ asks for topics at the port this far below the master's."""


class _Offsets(msgspec.Struct, rename="camel"):
    offset_table: dict[str, dict[str, int]] | None = None


class _DelayOffsets(msgspec.Struct, rename="camel"):
    offset_table: dict[str, int] | None = None


class _Groups(msgspec.Struct, rename="camel"):
    data_version: DataVersion = msgspec.field(default_factory=DataVersion)
    subscription_group_table: dict[str, SubscriptionGroupConfig] | None = None


class _Filters(msgspec.Struct, rename="camel"):
    filter_data_by_topic: dict[str, TopicFilters] | None = None


class _Modes(msgspec.Struct, rename="camel"):
    message_request_mode_map: dict[str, dict[str, RequestMode]] | None = None


@dataclass(frozen=True, slots=True)
class FollowedTables:
    """The slave's tables that are copied from its master."""

    topics: Topics
    groups: SubscriptionGroups
    offsets: ConsumerOffsets
    schedule: ScheduleService
    filters: ConsumerFilters[Any]
    modes: RequestModes
    delete_topics: Callable[[Mapping[str, int]], None]
    """Called with topics that the master has deleted, and the log offsets of the deletions."""
    log_end: Callable[[], int]
    queue_end: Callable[[str, int], int]
    """Returns the max offset of a queue."""
    accounts_version: Callable[[], DataVersion | None] = lambda: None
    """The version of the accounts; None without access control."""


@dataclass(slots=True)
class SyncState:
    """The state of following; times are monotonic seconds."""

    master_addr: str = ""
    last_at: float | None = None
    """The last time everything was copied."""
    failures: dict[str, str] = field(default_factory=dict)
    """Tables that couldn't be copied at the last attempt -> reason."""
    ends: MasterEnds = field(default_factory=MasterEnds)

    def follow(self, master_addr: str) -> None:
        """Start over with another master."""
        self.master_addr = master_addr
        self.last_at = None
        self.failures.clear()
        self.ends.clear()


class MetadataSync(Service):
    """Runs while this broker is a slave and its master is known. Event loop only."""

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
        self._unsupported: set[RequestCode] = set()

    def start(self) -> None:
        """Ask first after three seconds, then every ten."""
        self.spawn_forever(self._clock, self._follow_forever, name="metadata-sync")

    async def shutdown(self) -> None:
        await super().shutdown()
        await self._client.shutdown()

    def follow(self, master_addr: str) -> None:
        """Ask this master from now on; if it is None, keep the last known master."""
        if master_addr and master_addr not in (self.state.master_addr, self._own_address):
            logger.info("metadata sync started master=%s", master_addr)
            self.state.follow(master_addr)
            self._known_topics = set()
            self._known_filters = {}
            self._unsupported = set()
            self._tables.offsets.forget_master()

    async def sync(self) -> None:
        """Copy everything once; failures are retried the next time."""
        if not self._role.is_slave or not self.state.master_addr:
            return
        state = self.state
        for what, take in (
            ("topics", self._take_topics),
            ("consumer offsets", self._take_offsets),
            ("delay offsets", self._take_delay_offsets),
            ("subscription groups", self._take_groups),
            ("request modes", self._follow_modes),
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
            failure = f"the master at {state.master_addr} refused: {error}"
        except ValueError as error:
            failure = f"the answer of the master at {state.master_addr} cannot be read: {error}"
        except Exception as error:
            logger.exception("metadata copy failed kind=%s", what)
            failure = f"this broker failed; see its log: {error!r}"
        if failure and what not in state.failures:
            logger.warning("metadata not copied, will retry kind=%s reason=%s", what, failure)
        elif not failure and what in state.failures:
            logger.info("metadata copied again kind=%s", what)
        if failure:
            state.failures[what] = failure
        else:
            state.failures.pop(what, None)

    async def _take_topics(self, master_addr: str) -> None:
        # Read before asking the master: the data in this log is then older than the answer.
        log_end = self._tables.log_end()
        answer = await self._topics_of(master_addr)
        wrapper = TopicConfigSerializeWrapper.decode(_body_of(answer))
        text = answer.ext_fields.get(DELETED_TOPICS)
        told = {} if text is None else java_json.decode_as(text, dict[str, int])
        if not self._role.is_slave:
            return
        topics = self._tables.topics
        topics.follow(wrapper.data_version, wrapper.topic_config_table)
        # Only topics that this master had before: another master's table doesn't show deletions.
        gone = self._known_topics - wrapper.topic_config_table.keys()
        for topic in gone:
            if not topics.is_system(topic):
                logger.info("topic deleted by the master topic=%s", topic)
        # An original master doesn't report where its deleted topics ended.
        ends = dict.fromkeys(gone, log_end) | told
        self._tables.delete_topics(
            {topic: ends[topic] for topic in ends if not topics.is_system(topic)}
        )
        self._known_topics = set(wrapper.topic_config_table)

    async def _topics_of(self, master_addr: str) -> RemotingCommand:
        """Ask at the VIP port, as RocketMQ does; if nothing listens there, ask at the main port."""
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
        has_records = await self._until_replicated(offsets)
        if has_records and self._role.is_slave and self.state.master_addr == master_addr:
            self._tables.offsets.follow(offsets)

    async def _until_replicated(self, offsets: dict[str, dict[int, int]]) -> bool:
        """Wait until this log has the leases that a table of offsets depends on.

        Returns False if it is still behind after REPLICATED_S; the next table may be usable.
        """
        needed = records_needed(offsets)
        deadline = self._clock.monotonic() + REPLICATED_S
        while any(self._tables.queue_end(topic, queue_id) < end for topic, queue_id, end in needed):
            if self._clock.monotonic() >= deadline:
                return False
            await self._clock.sleep(REPLICATED_STEP_S)
        return True

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

    async def _follow_modes(self, master_addr: str) -> None:
        body = await self._ask_if_supported(master_addr, RequestCode.GET_ALL_MESSAGE_REQUEST_MODE)
        if body is not None and self._role.is_slave:
            modes = java_json.decode_as(body, _Modes).message_request_mode_map
            self._tables.modes.follow(modes or {})

    async def _take_filters(self, master_addr: str) -> None:
        body = await self._ask_if_supported(master_addr, RequestCode.GET_ALL_CONSUMER_FILTER)
        if body is None or not self._role.is_slave:
            return
        topics = java_json.decode_as(body, _Filters).filter_data_by_topic or {}
        filters = {
            (one.topic, one.consumer_group): one
            for topic in topics.values()
            for one in topic.group_filter_data.values()
        }
        self._tables.filters.follow(topics)
        # As with topics: a missing filter was deleted only if this master had it before.
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

    async def _ask_if_supported(self, address: str, code: RequestCode) -> bytes | None:
        """Return the answer's body, or None if this master doesn't support the request."""
        if code in self._unsupported:
            return None
        answer = await self._client.request(address, RemotingCommand.request(code), TIMEOUT_S)
        if answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
            self._unsupported.add(code)
            return None
        return _body_of(answer)

    async def _ask(self, address: str, code: RequestCode) -> bytes:
        return _body_of(
            await self._client.request(address, RemotingCommand.request(code), TIMEOUT_S)
        )


def _body_of(answer: RemotingCommand) -> bytes:
    if answer.code != ResponseCode.SUCCESS:
        raise ReplicationError(f"code {answer.code} {answer.remark or ''}".rstrip())
    return bytes(answer.body)
