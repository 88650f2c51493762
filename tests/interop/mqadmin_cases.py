"""Every command of mqadmin 4.9.7, ordered so that each has data to work on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

COMMAND_SECONDS = 120.0
FIRST_LINE = -60.0
"""The command continues in the background after its first line."""

Shape = Literal["text", "lines", "names", "keys", "first"]


@dataclass(frozen=True, slots=True)
class Case:
    """One command line.

    `shape` is the compared part: the text; its lines, which come from a hash table; these with
    every number replaced; the keys of `key : value` lines; the first line of an endless command.
    `differs` is why our output deliberately differs.
    """

    name: str
    command: tuple[str, ...]
    shape: Shape = "text"
    differs: str = ""
    seconds: float = COMMAND_SECONDS


def case(
    line: str,
    name: str = "",
    *,
    shape: Shape = "text",
    differs: str = "",
    seconds: float = COMMAND_SECONDS,
) -> Case:
    """Return the case of a command line whose arguments have no spaces."""
    return Case(name or line.split()[0], tuple(line.split()), shape, differs, seconds)


MORE = (
    "Trebuchet reports more: damage, the store, slow groups, replication, 5.x's spelling of a key"
)
IN_FILE = (
    "RocketMQ lets anyone who reaches the port set its paths; Trebuchet only allows listed keys"
)
ACL_OFF = "without access control, RocketMQ fails with a null pointer or doesn't answer"

CASES = [
    # Topics.
    case("updateTopic -c DefaultCluster -t made -r 4 -w 4"),
    case("updateTopic -b {broker} -t ordered -r 2 -w 2 -o true", "updateTopic, ordered"),
    case("updateTopic -b {broker} -t TBW102", "updateTopic, a system topic"),
    case("updateTopic -b {broker} -t with~tilde", "updateTopic, an illegal name"),
    case("updateTopic -b {broker} -t copied -r 4 -w 4 -p 6 -o false", "updateTopic, every value"),
    case("updateTopicPerm -b {broker} -t made -p 4"),
    case("updateTopicPerm -c DefaultCluster -t absent -p 4", "updateTopicPerm, absent"),
    case("topicList", shape="lines"),
    case("topicList -c", "topicList, by cluster", shape="lines"),
    case("topicRoute -t made"),
    case("topicRoute -t orders -l", "topicRoute, as a list"),
    case("topicRoute -t absent", "topicRoute, absent"),
    case("topicClusterList -t orders"),
    case("topicStatus -t orders"),
    case("topicStatus -t absent", "topicStatus, absent"),
    case("allocateMQ -t orders -i 10.0.0.1,10.0.0.2"),
    case("updateOrderConf -t ordered -m put -v broker-a:2", "updateOrderConf, put"),
    case("updateOrderConf -t ordered -m get", "updateOrderConf, get"),
    case("updateOrderConf -t ordered -m delete", "updateOrderConf, delete"),
    # Groups.
    case("updateSubGroup -c DefaultCluster -g made-group -r 3"),
    case("updateSubGroup -b {broker} -g made-group -s false -q 2", "updateSubGroup, one broker"),
    case(
        "updateSubGroup -b {broker} -g copied -s true -m true -d true -q 1 -r 16 -i 0 -w 1 -a true",
        "updateSubGroup, every value",
    ),
    case("getConsumerConfig -g made-group"),
    case("getConsumerConfig -g absent-group", "getConsumerConfig, absent"),
    case("consumerConnection -g live-consumer"),
    case("consumerConnection -g absent-group", "consumerConnection, absent"),
    case("producerConnection -g live-producer -t orders"),
    case("producerConnection -g absent-group -t orders", "producerConnection, absent"),
    case("producer -b {broker}", shape="lines"),
    case("consumerProgress", shape="lines"),
    case("consumerProgress -g live-consumer", "consumerProgress, one group"),
    case("consumerProgress -g live-consumer -s true", "consumerProgress, with clients"),
    case("consumerProgress -g absent-group", "consumerProgress, absent"),
    case("consumerStatus -g live-consumer"),
    case("consumerStatus -g live-consumer -i {client}", "consumerStatus, one", shape="keys"),
    case("consumerStatus -g live-consumer -i {client} -s", "consumerStatus, stacks", shape="first"),
    case("brokerConsumeStats -b {broker}"),
    case("brokerConsumeStats -b {broker} -o true -l 1", "brokerConsumeStats, ordered"),
    case("cloneGroupOffset -s live-consumer -d clone -t orders -o true"),
    case("resetOffsetByTime -g clone -t orders -s 0 -f true", "resetOffsetByTime, no one online"),
    # Messages.
    case("queryMsgById -i {offset_id}"),
    case("queryMsgById -i {offset_id} -g live-consumer -d {client}", "queryMsgById, consumed"),
    case("queryMsgById -i 7F00000100002A9F00000000000F0000", "queryMsgById, another broker's"),
    case("queryMsgByKey -t orders -k k1"),
    case("queryMsgByKey -t orders -k absent", "queryMsgByKey, absent"),
    case("queryMsgByUniqueKey -t orders -i {uniq}"),
    case(
        "queryMsgByUniqueKey -t orders -i {uniq} -g live-consumer -d {client}",
        "queryMsgByUniqueKey, consumed",
    ),
    case("queryMsgByUniqueKey -t orders -i {uniq} -a", "queryMsgByUniqueKey, all"),
    case("queryMsgByOffset -t orders -b broker-a -i 0 -o 1"),
    case("queryMsgByOffset -t orders -b broker-a -i 0 -o 99", "queryMsgByOffset, beyond the end"),
    case("queryMsgTraceById -i {uniq}"),
    case("printMsg -t orders -d true"),
    case("printMsg -t orders -s B -d true", "printMsg, a tag"),
    case("printMsgByQueue -t orders -a broker-a -i 0 -p true -d true -f true"),
    case("sendMessage -t orders -p hello -k mqadmin -c C -b broker-a -i 1"),
    case("sendMessage -t absent~ -p hello", "sendMessage, an illegal name"),
    case("consumeMessage -t orders -b broker-a -i 0 -o 2 -c 3"),
    case("consumeMessage -t orders -g another -c 4", "consumeMessage, a group"),
    case("sendMsgStatus -b broker-a -s 64 -c 3", shape="names"),
    case("checkMsgSendRT -t orders -a 3 -s 64", shape="names"),
    case("queryCq -t orders -q 0 -i 0 -c 3"),
    case("queryCq -t orders -q 0 -i 0 -c 3 -b {broker} -g live-consumer", "queryCq, a group"),
    case("queryCq -t orders -q 9 -i 0 -c 3 -b {broker}", "queryCq, no such queue"),
    case("queryCq -t orders -q 0 -i 99 -c 3 -b {broker}", "queryCq, beyond the end"),
    # Offsets.
    case("resetOffsetByTime -g live-consumer -t orders -s now -f true"),
    case("resetOffsetByTime -g absent-group -t orders -s now", "resetOffsetByTime, absent"),
    case("skipAccumulatedMessage -g live-consumer -t orders -f true"),
    # The cluster.
    case("clusterList", shape="names"),
    case("clusterList -m", "clusterList, more", shape="names"),
    case("brokerStatus -b {broker}", shape="keys", differs=MORE),
    case("brokerStatus -c DefaultCluster", "brokerStatus, a cluster", shape="keys", differs=MORE),
    case("statsAll", shape="names"),
    case("statsAll -t orders", "statsAll, one topic", shape="names"),
    # Each shows its known keys, whose number grows with each feature.
    case("getBrokerConfig -b {broker}", shape="first"),
    case("updateBrokerConfig -b {broker} -k fileReservedTime -v 71"),
    case("updateBrokerConfig -c DefaultCluster -k traceOn -v false", "updateBrokerConfig, cluster"),
    case(
        "updateBrokerConfig -b {broker} -k storePathRootDir -v /tmp/x",
        "updateBrokerConfig, a path",
        differs=IN_FILE,
    ),
    case("getNamesrvConfig", shape="first"),
    case("updateNamesrvConfig -k kvConfigPath -v /tmp/x", "updateNamesrvConfig, a path"),
    case("updateNamesrvConfig -k rocketmqHome -v /tmp/x", "updateNamesrvConfig", differs=IN_FILE),
    case("updateOrderConf -t orders -m put -v broker-a:2", "updateOrderConf, before the switch"),
    case("topicRoute -t orders", "topicRoute, before the switch"),
    case(
        "updateNamesrvConfig -k orderMessageEnable -v true",
        "updateNamesrvConfig, order queues in routes",
    ),
    case("topicRoute -t orders", "topicRoute, with order queues"),
    case("updateOrderConf -t orders -m delete", "updateOrderConf, after the switch"),
    case("updateNamesrvConfig -k productEnvName -v test", "updateNamesrvConfig, a name"),
    case("updateKvConfig -s NAMESPACE -k key -v value"),
    case("deleteKvConfig -s NAMESPACE -k key"),
    case("wipeWritePerm -b broker-a", shape="names"),
    case("topicRoute -t orders", "topicRoute, not writable"),
    case("addWritePerm -b broker-a", shape="names"),
    case("cleanExpiredCQ -b {broker}"),
    case("cleanExpiredCQ -c DefaultCluster", "cleanExpiredCQ, a cluster"),
    case("deleteExpiredCommitLog -b {broker}"),
    case("cleanUnusedTopic -b {broker}"),
    case("exportMetadata -c DefaultCluster -f {home}/export"),
    case("exportMetadata -c DefaultCluster -t -f {home}/export", "exportMetadata, topics"),
    case("exportMetadata -c DefaultCluster -g -f {home}/export", "exportMetadata, groups"),
    case("exportConfigs -c DefaultCluster -f {home}/export"),
    case("exportMetrics -c DefaultCluster -f {home}/export", shape="keys"),
    # Accounts; access control is off on both.
    case("updateAclConfig -b {broker} -a accessKey1 -s secretKey1", differs=ACL_OFF),
    case("deleteAclConfig -b {broker} -a accessKey1", differs=ACL_OFF),
    case("clusterAclConfigVersion -b {broker}", differs=ACL_OFF),
    case("updateGlobalWhiteAddr -b {broker} -g 10.0.0.1", differs=ACL_OFF),
    case("getAclConfig -b {broker}", differs=ACL_OFF),
    # Deletions.
    case("deleteTopic -c DefaultCluster -t made"),
    case("deleteTopic -c DefaultCluster -t absent", "deleteTopic, absent"),
    case("deleteSubGroup -c DefaultCluster -g made-group -r true"),
    case("deleteSubGroup -b {broker} -g absent-group", "deleteSubGroup, absent"),
    case("topicList", "topicList, at the end", shape="lines"),
    # Last, because they print endlessly.
    case("startMonitoring", shape="first", seconds=FIRST_LINE),
    case("clusterRT -a 2 -s 64 -i 1", shape="first", seconds=FIRST_LINE),
]
