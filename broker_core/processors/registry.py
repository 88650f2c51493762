"""The broker's request table, from code to handler.

The dispatcher answers codes without a row with REQUEST_CODE_NOT_SUPPORTED.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from broker_core.protocol.codes import RequestCode
from broker_core.remoting.overload import PULL_CODES

if TYPE_CHECKING:
    from broker_core.processors.admin.access import AccessAdmin
    from broker_core.processors.admin.broker import BrokerAdmin
    from broker_core.processors.admin.clients import ClientsAdmin
    from broker_core.processors.admin.connections import ConnectionsAdmin
    from broker_core.processors.admin.delays import DelaysAdmin
    from broker_core.processors.admin.filters import FiltersAdmin
    from broker_core.processors.admin.groups import GroupsAdmin
    from broker_core.processors.admin.ha import HaAdmin
    from broker_core.processors.admin.internals import InternalsAdmin
    from broker_core.processors.admin.messages import MessagesAdmin
    from broker_core.processors.admin.replication import ReplicationAdmin
    from broker_core.processors.admin.sample import SampleAdmin
    from broker_core.processors.admin.timers import TimersAdmin
    from broker_core.processors.admin.topics import TopicsAdmin
    from broker_core.processors.admin.transactions import TransactionAdmin
    from broker_core.processors.assignment import AssignmentProcessor
    from broker_core.processors.heartbeat import HeartbeatProcessor
    from broker_core.processors.offsets import OffsetsProcessor
    from broker_core.processors.pop import PopProcessor
    from broker_core.processors.pop_acks import PopAcksProcessor
    from broker_core.processors.pull import PullProcessor
    from broker_core.processors.query import QueryProcessor
    from broker_core.processors.recall import RecallProcessor
    from broker_core.processors.reply import ReplyProcessor
    from broker_core.processors.send import SendProcessor
    from broker_core.processors.send_back import SendBackProcessor
    from broker_core.processors.trace import TraceProcessor
    from broker_core.processors.transaction import TransactionProcessor
    from broker_core.remoting.dispatch import Handler


@dataclass(frozen=True, slots=True, kw_only=True)
class Processors:
    """All processors."""

    send: SendProcessor
    send_back: SendBackProcessor
    transaction: TransactionProcessor
    recall: RecallProcessor
    reply: ReplyProcessor
    pull: PullProcessor
    pop: PopProcessor
    pop_acks: PopAcksProcessor
    assignment: AssignmentProcessor
    heartbeat: HeartbeatProcessor
    offsets: OffsetsProcessor
    query: QueryProcessor
    trace: TraceProcessor
    access: AccessAdmin
    topics: TopicsAdmin
    groups: GroupsAdmin
    connections: ConnectionsAdmin
    clients: ClientsAdmin
    messages: MessagesAdmin
    replication: ReplicationAdmin
    broker: BrokerAdmin
    delays: DelaysAdmin
    filters: FiltersAdmin
    sample: SampleAdmin
    internals: InternalsAdmin
    ha: HaAdmin
    transactions: TransactionAdmin
    timers: TimersAdmin


def handlers(processors: Processors) -> dict[int, Handler]:
    """Return the table of the main port."""
    return {
        RequestCode.SEND_MESSAGE: processors.send.send_message,
        RequestCode.SEND_MESSAGE_V2: processors.send.send_message_v2,
        RequestCode.SEND_BATCH_MESSAGE: processors.send.send_batch_message,
        RequestCode.CONSUMER_SEND_MSG_BACK: processors.send_back.consumer_send_msg_back,
        RequestCode.END_TRANSACTION: processors.transaction.end_transaction,
        RequestCode.RESUME_CHECK_HALF_MESSAGE: processors.transaction.resume_check_half_message,
        RequestCode.RECALL_MESSAGE: processors.recall.recall_message,
        RequestCode.SEND_REPLY_MESSAGE: processors.reply.send_reply_message,
        RequestCode.SEND_REPLY_MESSAGE_V2: processors.reply.send_reply_message_v2,
        RequestCode.PULL_MESSAGE: processors.pull.pull_message,
        RequestCode.LITE_PULL_MESSAGE: processors.pull.pull_message,
        RequestCode.POP_MESSAGE: processors.pop.pop_message,
        RequestCode.PEEK_MESSAGE: processors.pop.peek_message,
        RequestCode.NOTIFICATION: processors.pop.notification,
        RequestCode.POLLING_INFO: processors.pop.polling_info,
        RequestCode.ACK_MESSAGE: processors.pop_acks.ack_message,
        RequestCode.BATCH_ACK_MESSAGE: processors.pop_acks.batch_ack_message,
        RequestCode.CHANGE_MESSAGE_INVISIBLETIME: processors.pop_acks.change_invisible_time,
        RequestCode.QUERY_ASSIGNMENT: processors.assignment.query_assignment,
        RequestCode.SET_MESSAGE_REQUEST_MODE: processors.assignment.set_message_request_mode,
        RequestCode.GET_ALL_MESSAGE_REQUEST_MODE: processors.assignment.all_modes,
        RequestCode.HEART_BEAT: processors.heartbeat.heart_beat,
        RequestCode.UNREGISTER_CLIENT: processors.heartbeat.unregister_client,
        RequestCode.CHECK_CLIENT_CONFIG: processors.heartbeat.check_client_config,
        RequestCode.GET_CONSUMER_LIST_BY_GROUP: processors.heartbeat.get_consumer_list_by_group,
        RequestCode.LOCK_BATCH_MQ: processors.heartbeat.lock_batch_mq,
        RequestCode.UNLOCK_BATCH_MQ: processors.heartbeat.unlock_batch_mq,
        RequestCode.QUERY_CONSUMER_OFFSET: processors.offsets.query_consumer_offset,
        RequestCode.UPDATE_CONSUMER_OFFSET: processors.offsets.update_consumer_offset,
        RequestCode.SEARCH_OFFSET_BY_TIMESTAMP: processors.offsets.search_offset_by_timestamp,
        RequestCode.GET_MAX_OFFSET: processors.offsets.get_max_offset,
        RequestCode.GET_MIN_OFFSET: processors.offsets.get_min_offset,
        RequestCode.GET_EARLIEST_MSG_STORETIME: processors.offsets.get_earliest_msg_storetime,
        RequestCode.QUERY_MESSAGE: processors.query.query_message,
        RequestCode.VIEW_MESSAGE_BY_ID: processors.query.view_message_by_id,
        RequestCode.UPDATE_AND_CREATE_TOPIC: processors.topics.update_and_create,
        RequestCode.DELETE_TOPIC_IN_BROKER: processors.topics.delete,
        RequestCode.GET_ALL_TOPIC_CONFIG: processors.topics.get_all,
        RequestCode.GET_TOPIC_CONFIG: processors.topics.get_one,
        RequestCode.GET_TOPIC_STATS_INFO: processors.topics.stats_info,
        RequestCode.QUERY_TOPIC_CONSUME_BY_WHO: processors.topics.consumed_by,
        RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER: processors.topics.system_topics,
        RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: processors.groups.update_and_create,
        RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: processors.groups.get_all,
        RequestCode.DELETE_SUBSCRIPTIONGROUP: processors.groups.delete,
        RequestCode.GET_CONSUME_STATS: processors.groups.consume_stats,
        RequestCode.GET_ALL_CONSUMER_OFFSET: processors.groups.all_offsets,
        RequestCode.INVOKE_BROKER_TO_RESET_OFFSET: processors.groups.reset_offset,
        RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS: processors.clients.consumer_status,
        RequestCode.GET_CONSUMER_RUNNING_INFO: processors.clients.running_info,
        RequestCode.CONSUME_MESSAGE_DIRECTLY: processors.clients.consume_directly,
        RequestCode.QUERY_CONSUME_TIME_SPAN: processors.groups.consume_time_span,
        RequestCode.QUERY_CORRECTION_OFFSET: processors.groups.correction_offset,
        RequestCode.CLONE_GROUP_OFFSET: processors.groups.clone_offset,
        RequestCode.GET_BROKER_CONSUME_STATS: processors.groups.broker_consume_stats,
        RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE: processors.messages.clean_expired_consume_queues,
        RequestCode.CLEAN_UNUSED_TOPIC: processors.messages.clean_unused_topics,
        RequestCode.DELETE_EXPIRED_COMMITLOG: processors.messages.delete_expired_commit_log,
        RequestCode.QUERY_CONSUME_QUEUE: processors.messages.query_consume_queue,
        RequestCode.GET_CONSUMER_CONNECTION_LIST: processors.connections.consumers_of,
        RequestCode.GET_PRODUCER_CONNECTION_LIST: processors.connections.producers_of,
        RequestCode.GET_ALL_PRODUCER_INFO: processors.connections.all_producers,
        RequestCode.GET_ALL_DELAY_OFFSET: processors.broker.all_delay_offsets,
        RequestCode.GET_BROKER_RUNTIME_INFO: processors.broker.runtime_info,
        RequestCode.GET_BROKER_CONFIG: processors.broker.get_config,
        RequestCode.UPDATE_BROKER_CONFIG: processors.broker.update_config,
        RequestCode.VIEW_BROKER_STATS_DATA: processors.broker.stats_data,
        RequestCode.UPDATE_AND_CREATE_ACL_CONFIG: processors.access.update_account,
        RequestCode.DELETE_ACL_CONFIG: processors.access.delete_account,
        RequestCode.GET_BROKER_CLUSTER_ACL_INFO: processors.access.versions,
        RequestCode.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG: processors.access.update_white_addresses,
        RequestCode.GET_BROKER_CLUSTER_ACL_CONFIG: processors.access.accounts,
        RequestCode.GET_BROKER_HA_STATUS: processors.ha.ha_status,
        RequestCode.NOTIFY_MIN_BROKER_ID_CHANGE: processors.ha.min_broker_id_changed,
        **_trebuchet_handlers(processors),
    }


def _trebuchet_handlers(processors: Processors) -> dict[int, Handler]:
    """Return Trebuchet's own requests, which RocketMQ's brokers don't support."""
    return {
        RequestCode.RESET_OFFSETS: processors.groups.reset_offsets,
        RequestCode.GET_HALF_MESSAGES: processors.transactions.halves,
        RequestCode.CHECK_HALF_MESSAGE: processors.transactions.check,
        RequestCode.GET_TIMER_MESSAGES: processors.timers.messages,
        RequestCode.DISCONNECT_CLIENT: processors.connections.disconnect,
        RequestCode.EXPLAIN_ACCESS: processors.access.explain,
        RequestCode.GET_BROKER_SAMPLE: processors.sample.sample,
        RequestCode.GET_BROKER_INTERNALS: processors.internals.internals,
        RequestCode.UPDATE_DELAY_OFFSET: processors.delays.update_offset,
        RequestCode.GET_ALL_CONSUMER_FILTER: processors.filters.all_filters,
        RequestCode.UPDATE_CONSUMER_FILTER: processors.filters.update,
        RequestCode.DELETE_CONSUMER_FILTER: processors.filters.delete,
        RequestCode.GET_REPLICATION_STATE: processors.replication.state,
        RequestCode.PROMOTE_BROKER: processors.replication.promote,
        RequestCode.TRACE_WATCH: processors.trace.watch,
        RequestCode.TRACE_UNWATCH: processors.trace.unwatch,
        RequestCode.TRACE_LEVEL: processors.trace.level,
        RequestCode.TRACE_RECORDED: processors.trace.recorded,
    }


def fast_handlers(processors: Processors) -> dict[int, Handler]:
    """Return the table of the VIP port: everything except pulls, as in RocketMQ."""
    table = handlers(processors)
    for code in PULL_CODES:
        del table[code]
    return table
