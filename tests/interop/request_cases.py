"""Requests by code, each row of the tables of the broker and of the name server at least once.

The test sends them in this order, because some depend on earlier ones. `{offset}`, `{msg_id}`,
`{half_offset}` and `{half_queue_offset}` are replaced by a stored message's location.
"""

from __future__ import annotations

from broker_core.protocol.codes import RequestCode as Code
from tests.interop.request_parts import (
    BACK,
    BROKER,
    CALL,
    COMMITTED,
    DEAD,
    DLQ_TOPIC,
    END,
    ENDED_TOPIC,
    GROUP,
    GROUP_CONFIG,
    LEAVES_OUT,
    LIVE_GROUP,
    LIVE_PRODUCERS,
    NO_QUEUE,
    NO_TOPIC,
    OFFSET,
    PULL,
    QUERY,
    QUEUE,
    RESET,
    RETRY,
    SEND,
    SEND_V2,
    STATS,
    TOPIC,
    Case,
    check_config,
    heartbeat,
    lock,
    text,
    without,
)
from tests.support.raw_remoting import pull_fields, topic_fields

MESSAGE_REQUESTS = [
    Case("send", Code.SEND_MESSAGE, SEND, b"x"),
    Case("send, short names", Code.SEND_MESSAGE_V2, SEND_V2, b"x"),
    Case("create a topic of one queue", Code.UPDATE_AND_CREATE_TOPIC, topic_fields("single", 1)),
    Case(
        "send to a queue of the broker's choice",
        Code.SEND_MESSAGE,
        {**SEND, "topic": "single", "queueId": "-1"},
        b"x",
    ),
    Case(
        "send a half message",
        Code.SEND_MESSAGE,
        {**SEND, "properties": "TRAN_MSG\x01true\x02PGROUP\x01gone"},
        b"x",
    ),
    Case(
        "send with a delay level beyond the last",
        Code.SEND_MESSAGE,
        {**SEND, "properties": "DELAY\x0199"},
        b"x",
    ),
    Case("send without a body", Code.SEND_MESSAGE, SEND),
    Case(
        "send an invalid batch",
        Code.SEND_BATCH_MESSAGE,
        {**SEND_V2, "m": "true"},
        b"x",
        differs="Trebuchet calls the message illegal; RocketMQ fails",
    ),
    Case(
        "reply without a requester",
        Code.SEND_REPLY_MESSAGE,
        {**SEND, "topic": "DefaultCluster_REPLY_TOPIC", "properties": "REPLY_TO_CLIENT\x01nobody"},
        b"x",
    ),
    Case(
        "reply without an address",
        Code.SEND_REPLY_MESSAGE,
        {**SEND, "topic": "DefaultCluster_REPLY_TOPIC"},
        b"x",
    ),
    Case("return a message", Code.CONSUMER_SEND_MSG_BACK, BACK),
    Case(
        "return a message as a dead letter",
        Code.CONSUMER_SEND_MSG_BACK,
        {**BACK, "delayLevel": "-1"},
    ),
    Case("return a missing message", Code.CONSUMER_SEND_MSG_BACK, {**BACK, "offset": "3"}),
    Case("return a message without a group", Code.CONSUMER_SEND_MSG_BACK, without(BACK, "group")),
    Case(
        "return a message without retries left",
        Code.CONSUMER_SEND_MSG_BACK,
        {**BACK, "maxReconsumeTimes": "0"},
    ),
    Case(
        "return a message with a high delay level",
        Code.CONSUMER_SEND_MSG_BACK,
        {**BACK, "delayLevel": "99"},
    ),
    Case(
        "return a half message",
        Code.CONSUMER_SEND_MSG_BACK,
        {**BACK, "offset": "{half_offset}"},
        differs="Trebuchet rejects it, because no consumer ever received a half message",
    ),
    Case("retry by a send", Code.SEND_MESSAGE, RETRY, b"x"),
    # Without a delay: RocketMQ forgets to clear it, and delays the dead letter.
    Case("retry by a send too often", Code.SEND_MESSAGE, {**DEAD, "reconsumeTimes": "16"}, b"x"),
    Case(
        "retry by a send, no retries", Code.SEND_MESSAGE, {**DEAD, "maxReconsumeTimes": "1"}, b"x"
    ),
    Case(
        "retry by a send of a new group",
        Code.SEND_MESSAGE,
        {**RETRY, "topic": "%RETRY%rows-new"},
        b"x",
    ),
    Case("send to dead letters", Code.SEND_MESSAGE, {**SEND, "topic": DLQ_TOPIC}, b"x"),
    Case("dead letters", Code.PULL_MESSAGE, pull_fields(DLQ_TOPIC, 0, 0)),
    Case("number of dead letters", Code.GET_MAX_OFFSET, {"topic": DLQ_TOPIC, "queueId": "0"}),
    Case("number of retries", Code.GET_MAX_OFFSET, {"topic": f"%RETRY%{GROUP}", "queueId": "0"}),
    *(
        Case(
            f"how many wait at level {level}",
            Code.GET_MAX_OFFSET,
            {"topic": "SCHEDULE_TOPIC_XXXX", "queueId": str(level - 1)},
        )
        for level in (1, 2, 4, 18)
    ),
    Case("pull", Code.PULL_MESSAGE, PULL),
    Case("pull without a group", Code.PULL_MESSAGE, without(PULL, "consumerGroup")),
    Case(
        "pull with the subscription of an offline group",
        Code.PULL_MESSAGE,
        {**PULL, "sysFlag": "0"},
    ),
    Case(
        "pull a topic without a subscription",
        Code.PULL_MESSAGE,
        {**PULL, "sysFlag": "0", "consumerGroup": LIVE_GROUP, "topic": "TBW102"},
    ),
    Case(
        "pull with a subscription newer than the heartbeat",
        Code.PULL_MESSAGE,
        {**PULL, "sysFlag": "0", "consumerGroup": LIVE_GROUP, "subVersion": "99"},
    ),
    Case(
        "pull with the heartbeat's subscription",
        Code.PULL_MESSAGE,
        {**PULL, "sysFlag": "0", "consumerGroup": LIVE_GROUP, "subVersion": "1"},
    ),
    Case(
        "pull with an invalid expression",
        Code.PULL_MESSAGE,
        {**PULL, "queueOffset": "99", "expressionType": "SQL92", "subscription": "a >"},
        differs="RocketMQ pulls as if all messages matched",
    ),
    Case("query by key", Code.QUERY_MESSAGE, QUERY),
    Case("query by a missing key", Code.QUERY_MESSAGE, {**QUERY, "key": "none"}),
    Case("query by key in the past", Code.QUERY_MESSAGE, {**QUERY, "endTimestamp": "1000"}),
    Case("query without a key", Code.QUERY_MESSAGE, without(QUERY, "key"), differs=LEAVES_OUT),
    Case("view", Code.VIEW_MESSAGE_BY_ID, {"offset": "{offset}"}),
    Case("view a missing message", Code.VIEW_MESSAGE_BY_ID, {"offset": "999999999"}),
    Case("view without an ID", Code.VIEW_MESSAGE_BY_ID),
    Case(
        "end a transaction with the wrong group",
        Code.END_TRANSACTION,
        {**END, "producerGroup": "wrong"},
    ),
    Case(
        "end a transaction with a wrong offset",
        Code.END_TRANSACTION,
        {**END, "tranStateTableOffset": "77"},
    ),
    Case(
        "end a missing transaction",
        Code.END_TRANSACTION,
        {**END, "commitLogOffset": "99999999"},
    ),
    Case("end a transaction", Code.END_TRANSACTION, END),
    Case("end it again", Code.END_TRANSACTION, END),
    Case(
        "roll it back after the commit",
        Code.END_TRANSACTION,
        {**END, "commitOrRollback": "12"},
        differs="Trebuchet keeps the first outcome",
    ),
    Case(
        "end a message that isn't a half message",
        Code.END_TRANSACTION,
        {**END, "commitLogOffset": "{offset}", "tranStateTableOffset": "0"},
    ),
    Case(
        "resume a message that isn't a half message",
        Code.RESUME_CHECK_HALF_MESSAGE,
        {"msgId": "{msg_id}"},
        differs="Trebuchet only resumes a message whose checks were used up",
    ),
    Case(
        "number of delivered messages",
        Code.GET_MAX_OFFSET,
        {"topic": ENDED_TOPIC, "queueId": "0"},
        differs="RocketMQ delivers the message again for each further commit",
    ),
    Case(
        "resume a missing message",
        Code.RESUME_CHECK_HALF_MESSAGE,
        {"msgId": "7F0000010000000100000000FFFFFFFF"},
    ),
]

OFFSETS_REQUESTS = [
    *(
        Case(f"{code.name} of {what}", code, fields)
        for code in (Code.GET_MAX_OFFSET, Code.GET_MIN_OFFSET, Code.GET_EARLIEST_MSG_STORETIME)
        for what, fields in (
            ("a queue", QUEUE),
            ("a missing queue", NO_QUEUE),
            ("a missing topic", NO_TOPIC),
            ("no fields", {}),
        )
    ),
    *(
        Case(
            f"SEARCH_OFFSET_BY_TIMESTAMP of {what}",
            Code.SEARCH_OFFSET_BY_TIMESTAMP,
            {**fields, "timestamp": "0"},
        )
        for what, fields in (
            ("a queue", QUEUE),
            ("a missing queue", NO_QUEUE),
            ("a missing topic", NO_TOPIC),
        )
    ),
    Case("offset of a group", Code.QUERY_CONSUMER_OFFSET, OFFSET),
    Case(
        "offset of a group without one",
        Code.QUERY_CONSUMER_OFFSET,
        {**OFFSET, "consumerGroup": "new"},
    ),
    Case("offset in a missing queue", Code.QUERY_CONSUMER_OFFSET, {**OFFSET, **NO_QUEUE}),
    Case("offset in a missing topic", Code.QUERY_CONSUMER_OFFSET, {**OFFSET, **NO_TOPIC}),
    Case("offset without a group", Code.QUERY_CONSUMER_OFFSET, QUEUE, differs=LEAVES_OUT),
    Case("commit", Code.UPDATE_CONSUMER_OFFSET, {**OFFSET, "commitOffset": str(COMMITTED)}),
    Case("commit without an offset", Code.UPDATE_CONSUMER_OFFSET, OFFSET),
]

CLIENTS_REQUESTS = [
    Case("heartbeat", Code.HEART_BEAT, body=heartbeat("passing", "passing-group")),
    Case("heartbeat without a body", Code.HEART_BEAT),
    Case("heartbeat with invalid JSON", Code.HEART_BEAT, body=b"{"),
    Case(
        "unregister",
        Code.UNREGISTER_CLIENT,
        {"clientID": "x", "consumerGroup": GROUP, "producerGroup": "x"},
    ),
    Case("unregister without fields", Code.UNREGISTER_CLIENT),
    Case("check tags", Code.CHECK_CLIENT_CONFIG, body=check_config("TAG", "A")),
    Case("check an expression", Code.CHECK_CLIENT_CONFIG, body=check_config("SQL92", "a > 1")),
    Case(
        "check an invalid expression", Code.CHECK_CLIENT_CONFIG, body=check_config("SQL92", "a >")
    ),
    Case("check without a body", Code.CHECK_CLIENT_CONFIG),
    Case("members", Code.GET_CONSUMER_LIST_BY_GROUP, {"consumerGroup": LIVE_GROUP}),
    Case("members of a missing group", Code.GET_CONSUMER_LIST_BY_GROUP, {"consumerGroup": "none"}),
    Case("members without a group name", Code.GET_CONSUMER_LIST_BY_GROUP),
    Case("lock", Code.LOCK_BATCH_MQ, body=lock("one")),
    Case("lock another client's queue", Code.LOCK_BATCH_MQ, body=lock("two")),
    Case("unlock", Code.UNLOCK_BATCH_MQ, body=lock("one")),
    Case("lock without a body", Code.LOCK_BATCH_MQ),
]

TOPICS_REQUESTS = [
    Case("create a topic", Code.UPDATE_AND_CREATE_TOPIC, topic_fields("made")),
    Case("delete a topic", Code.DELETE_TOPIC_IN_BROKER, {"topic": "made"}),
    Case("delete a missing topic", Code.DELETE_TOPIC_IN_BROKER, {"topic": "made"}),
    Case("delete a system topic", Code.DELETE_TOPIC_IN_BROKER, {"topic": "TBW102"}),
    Case("all topics", Code.GET_ALL_TOPIC_CONFIG),
    Case("statistics of a topic", Code.GET_TOPIC_STATS_INFO, {"topic": TOPIC}),
    Case("statistics of a missing topic", Code.GET_TOPIC_STATS_INFO, {"topic": "nowhere"}),
    Case("groups of a topic", Code.QUERY_TOPIC_CONSUME_BY_WHO, {"topic": TOPIC}),
    Case("groups of a missing topic", Code.QUERY_TOPIC_CONSUME_BY_WHO, {"topic": "nowhere"}),
    Case("system topics", Code.GET_SYSTEM_TOPIC_LIST_FROM_BROKER),
]

GROUPS_REQUESTS = [
    Case("create a group", Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=text(GROUP_CONFIG)),
    Case("create a group without a body", Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=b""),
    Case("all groups", Code.GET_ALL_SUBSCRIPTIONGROUP_CONFIG),
    Case(
        "delete a group",
        Code.DELETE_SUBSCRIPTIONGROUP,
        {"groupName": "made", "removeOffset": "true"},
    ),
    Case("delete a missing group", Code.DELETE_SUBSCRIPTIONGROUP, {"groupName": "made"}),
    Case("backlog", Code.GET_CONSUME_STATS, {"consumerGroup": GROUP}),
    Case("backlog in a topic", Code.GET_CONSUME_STATS, {"consumerGroup": GROUP, "topic": TOPIC}),
    Case("backlog of a missing group", Code.GET_CONSUME_STATS, {"consumerGroup": "none"}),
    Case("backlog of all groups", Code.GET_BROKER_CONSUME_STATS, {"isOrder": "false"}),
    Case("backlog of ordered groups", Code.GET_BROKER_CONSUME_STATS, {"isOrder": "true"}),
    Case("all offsets", Code.GET_ALL_CONSUMER_OFFSET),
    Case("time span", Code.QUERY_CONSUME_TIME_SPAN, {"topic": TOPIC, "group": GROUP}),
    Case(
        "time span in a missing topic",
        Code.QUERY_CONSUME_TIME_SPAN,
        {"topic": "nowhere", "group": GROUP},
    ),
    Case(
        "corrected offsets", Code.QUERY_CORRECTION_OFFSET, {"topic": TOPIC, "compareGroup": GROUP}
    ),
    Case(
        "clone offsets",
        Code.CLONE_GROUP_OFFSET,
        {"srcGroup": GROUP, "destGroup": "cloned", "topic": TOPIC, "offline": "true"},
    ),
    Case(
        "clone offsets of a missing topic",
        Code.CLONE_GROUP_OFFSET,
        {"srcGroup": GROUP, "destGroup": "cloned", "topic": "nowhere", "offline": "true"},
    ),
    Case("reset an offline group", Code.INVOKE_BROKER_TO_RESET_OFFSET, RESET),
    Case(
        "reset an offline group to the end",
        Code.INVOKE_BROKER_TO_RESET_OFFSET,
        {**RESET, "timestamp": "-1"},
    ),
    Case("reset a missing group", Code.INVOKE_BROKER_TO_RESET_OFFSET, {**RESET, "group": "none"}),
    Case(
        "reset in a missing topic",
        Code.INVOKE_BROKER_TO_RESET_OFFSET,
        {**RESET, "topic": "nowhere"},
    ),
    Case(
        "reset an online group", Code.INVOKE_BROKER_TO_RESET_OFFSET, {**RESET, "group": LIVE_GROUP}
    ),
    Case(
        "status of an offline group",
        Code.INVOKE_BROKER_TO_GET_CONSUMER_STATUS,
        {"topic": TOPIC, "group": "none"},
    ),
    Case(
        "status of a missing client",
        Code.INVOKE_BROKER_TO_GET_CONSUMER_STATUS,
        {"topic": TOPIC, "group": LIVE_GROUP, "clientAddr": "nobody"},
    ),
    Case("running info of a missing client", Code.GET_CONSUMER_RUNNING_INFO, CALL),
    Case(
        "direct consumption by a missing client",
        Code.CONSUME_MESSAGE_DIRECTLY,
        {**CALL, "msgId": "{msg_id}", "brokerName": "broker-a"},
    ),
    Case(
        "direct consumption of an invalid ID",
        Code.CONSUME_MESSAGE_DIRECTLY,
        {**CALL, "msgId": "x", "brokerName": "broker-a"},
    ),
    Case(
        "connections of a group", Code.GET_CONSUMER_CONNECTION_LIST, {"consumerGroup": LIVE_GROUP}
    ),
    Case(
        "connections of a missing group",
        Code.GET_CONSUMER_CONNECTION_LIST,
        {"consumerGroup": "none"},
    ),
    Case(
        "producers of a group", Code.GET_PRODUCER_CONNECTION_LIST, {"producerGroup": LIVE_PRODUCERS}
    ),
    Case(
        "producers of a missing group", Code.GET_PRODUCER_CONNECTION_LIST, {"producerGroup": "none"}
    ),
    Case("all producers", Code.GET_ALL_PRODUCER_INFO),
]

BROKER_ITSELF_REQUESTS = [
    Case(
        "units",
        Code.QUERY_CONSUME_QUEUE,
        {**QUEUE, "index": "0", "count": "3", "consumerGroup": GROUP},
    ),
    Case(
        "units for an online group",
        Code.QUERY_CONSUME_QUEUE,
        {**QUEUE, "index": "1", "count": "1", "consumerGroup": LIVE_GROUP},
    ),
    Case("units beyond the end", Code.QUERY_CONSUME_QUEUE, {**QUEUE, "index": "99", "count": "3"}),
    Case(
        "units of a missing queue",
        Code.QUERY_CONSUME_QUEUE,
        {"topic": TOPIC, "queueId": "78", "index": "0", "count": "3"},
    ),
    Case("clean queues", Code.CLEAN_EXPIRED_CONSUMEQUEUE),
    Case("clean topics", Code.CLEAN_UNUSED_TOPIC),
    Case("clean the log", Code.DELETE_EXPIRED_COMMITLOG),
    Case("delay offsets", Code.GET_ALL_DELAY_OFFSET),
    Case("runtime info", Code.GET_BROKER_RUNTIME_INFO),
    Case("configuration", Code.GET_BROKER_CONFIG),
    Case("set the configuration", Code.UPDATE_BROKER_CONFIG, body=b"traceOn=true\n"),
    Case(
        "set a path",
        Code.UPDATE_BROKER_CONFIG,
        body=b"storePathIndex=/tmp/x\n",
        differs="Trebuchet doesn't set paths over the wire",
    ),
    Case("set without a body", Code.UPDATE_BROKER_CONFIG),
    *(
        Case(f"count {name}", Code.VIEW_BROKER_STATS_DATA, {"statsName": name, "statsKey": key})
        for name, key in STATS.items()
    ),
    Case("statistics without a name", Code.VIEW_BROKER_STATS_DATA),
]

OTHER_VERSIONS_REQUESTS = [
    *(
        Case(f"code {code}", code)
        for code in (13, 22, 23, 27, 47, 209, 210, 211, 212, 213, 214, 301, 302, 353, 9_999)
    ),
]
"""Codes that no 4.9 broker supports."""

NAME_SERVER_REQUESTS = [
    Case(
        "route without a topic", Code.GET_ROUTEINFO_BY_TOPIC, name_server=True, differs=LEAVES_OUT
    ),
    *(
        Case(name, code, fields, body, name_server=True)
        for name, code, fields, body in (
            ("put", Code.PUT_KV_CONFIG, {"namespace": "n", "key": "k", "value": "v"}, b""),
            ("put without fields", Code.PUT_KV_CONFIG, {}, b""),
            ("get", Code.GET_KV_CONFIG, {"namespace": "n", "key": "k"}, b""),
            ("get a missing key", Code.GET_KV_CONFIG, {"namespace": "n", "key": "none"}, b""),
            ("list", Code.GET_KVLIST_BY_NAMESPACE, {"namespace": "n"}, b""),
            ("list a missing namespace", Code.GET_KVLIST_BY_NAMESPACE, {"namespace": "none"}, b""),
            ("delete", Code.DELETE_KV_CONFIG, {"namespace": "n", "key": "k"}, b""),
            (
                "delete a missing key",
                Code.DELETE_KV_CONFIG,
                {"namespace": "n", "key": "k"},
                b"",
            ),
            (
                "register",
                Code.REGISTER_BROKER,
                {**BROKER, "compressed": "false", "bodyCrc32": "0"},
                text(
                    {
                        "filterServerList": [],
                        "topicConfigSerializeWrapper": {
                            "dataVersion": {"counter": 1, "timestamp": 1},
                            "topicConfigTable": {
                                "theirs": {
                                    "order": False,
                                    "perm": 6,
                                    "readQueueNums": 3,
                                    "topicFilterType": "SINGLE_TAG",
                                    "topicName": "theirs",
                                    "topicSysFlag": 0,
                                    "writeQueueNums": 3,
                                }
                            },
                        },
                    }
                ),
            ),
            (
                "register with a wrong checksum",
                Code.REGISTER_BROKER,
                {**BROKER, "compressed": "false", "bodyCrc32": "7"},
                b"{}",
            ),
            (
                "version that is known",
                Code.QUERY_DATA_VERSION,
                BROKER,
                text({"counter": 1, "timestamp": 1}),
            ),
            (
                "version that is old",
                Code.QUERY_DATA_VERSION,
                BROKER,
                text({"counter": 2, "timestamp": 2}),
            ),
            ("route", Code.GET_ROUTEINFO_BY_TOPIC, {"topic": "theirs"}, b""),
            ("route of our broker", Code.GET_ROUTEINFO_BY_TOPIC, {"topic": TOPIC}, b""),
            (
                "route in plain JSON",
                Code.GET_ROUTEINFO_BY_TOPIC,
                {"topic": "theirs", "acceptStandardJsonOnly": "true"},
                b"",
            ),
            ("cluster", Code.GET_BROKER_CLUSTER_INFO, {}, b""),
            ("wipe", Code.WIPE_WRITE_PERM_OF_BROKER, {"brokerName": "other"}, b""),
            ("wipe a missing broker", Code.WIPE_WRITE_PERM_OF_BROKER, {"brokerName": "none"}, b""),
            (
                "route without write permission",
                Code.GET_ROUTEINFO_BY_TOPIC,
                {"topic": "theirs"},
                b"",
            ),
            ("add", Code.ADD_WRITE_PERM_OF_BROKER, {"brokerName": "other"}, b""),
            (
                "delete what a broker has deleted",
                Code.DELETE_TOPIC_IN_NAMESRV,
                {"topic": "made"},
                b"",
            ),
            ("topics of all clusters", Code.GET_ALL_TOPIC_LIST_FROM_NAMESERVER, {}, b""),
            ("topics of a cluster", Code.GET_TOPICS_BY_CLUSTER, {"cluster": "other-cluster"}, b""),
            ("topics of a missing cluster", Code.GET_TOPICS_BY_CLUSTER, {"cluster": "none"}, b""),
            ("system topics of all clusters", Code.GET_SYSTEM_TOPIC_LIST_FROM_NS, {}, b""),
            ("unit topics", Code.GET_UNIT_TOPIC_LIST, {}, b""),
            ("unit subscriptions", Code.GET_HAS_UNIT_SUB_TOPIC_LIST, {}, b""),
            ("unit subscriptions of others", Code.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST, {}, b""),
            (
                "delete a topic of a cluster",
                Code.DELETE_TOPIC_IN_NAMESRV,
                {"topic": "theirs", "clusterName": "other-cluster"},
                b"",
            ),
            ("delete a topic everywhere", Code.DELETE_TOPIC_IN_NAMESRV, {"topic": "theirs"}, b""),
            ("configuration of the name server", Code.GET_NAMESRV_CONFIG, {}, b""),
            ("unregister a broker", Code.UNREGISTER_BROKER, BROKER, b""),
        )
    ),
]

REFUSED_COMMITS = [
    Case(
        "commit beyond the end",
        Code.UPDATE_CONSUMER_OFFSET,
        {**OFFSET, "commitOffset": "5000"},
        differs="Trebuchet rejects an offset that no client can have read; RocketMQ stores it",
    ),
    Case(
        "commit in a missing topic",
        Code.UPDATE_CONSUMER_OFFSET,
        {**OFFSET, "topic": "missing", "commitOffset": "1"},
        differs="Trebuchet answers like 5.x; RocketMQ stores it, and a later topic starts there",
    ),
]
"""The last ones: RocketMQ stores them, which affects later answers."""

CASES = [
    *MESSAGE_REQUESTS,
    *OFFSETS_REQUESTS,
    *CLIENTS_REQUESTS,
    *TOPICS_REQUESTS,
    *GROUPS_REQUESTS,
    *BROKER_ITSELF_REQUESTS,
    *OTHER_VERSIONS_REQUESTS,
    *NAME_SERVER_REQUESTS,
    *REFUSED_COMMITS,
]
