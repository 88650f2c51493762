"""Keys of RocketMQ without effect here: accepted and ignored, or refused.

A value is refused if it asks for an unsupported feature: a file that names an authentication
provider must not start a broker without access control.
"""

from __future__ import annotations

from typing import NamedTuple

NO_THREAD_POOLS = "one event loop has no thread pools and no queues before them"
NO_NETTY = "buffers, selectors and semaphores are netty's"
NO_LOCKS = "one writer needs no put lock"
NO_DLEDGER = "DLedger isn't supported"
NO_ACTING_MASTER = (
    "a slave already serves reads without its master, and accepts writes once it is promoted"
)
NO_LIGHT_QUEUES = "light queues aren't supported"
NO_BILLING = "billing isn't supported"
ALWAYS = "it is always on here"
STEP_NOT_NEEDED = "it controls a step that isn't needed here"

WITHOUT_EFFECT = {
    **dict.fromkeys(
        (
            "adminBrokerThreadPoolNums",
            "clientManageThreadPoolNums",
            "clientManagerThreadPoolQueueCapacity",
            "consumerManageThreadPoolNums",
            "consumerManagerThreadPoolQueueCapacity",
            "endTransactionPoolQueueCapacity",
            "endTransactionThreadPoolNums",
            "heartbeatThreadPoolNums",
            "heartbeatThreadPoolQueueCapacity",
            "processReplyMessageThreadPoolNums",
            "pullMessageThreadPoolNums",
            "pullThreadPoolQueueCapacity",
            "putMessageFutureThreadPoolNums",
            "putThreadPoolQueueCapacity",
            "queryMessageThreadPoolNums",
            "queryThreadPoolQueueCapacity",
            "replyThreadPoolQueueCapacity",
            "sendMessageThreadPoolNums",
            "sendThreadPoolQueueCapacity",
        ),
        NO_THREAD_POOLS,
    ),
    **dict.fromkeys(
        (
            "channelNotActiveInterval",
            "clientAsyncSemaphoreValue",
            "clientCallbackExecutorThreads",
            "clientCloseSocketIfTimeout",
            "clientOnewaySemaphoreValue",
            "clientPooledByteBufAllocatorEnable",
            "clientWorkerThreads",
            "serverAsyncSemaphoreValue",
            "serverCallbackExecutorThreads",
            "serverOnewaySemaphoreValue",
            "serverPooledByteBufAllocatorEnable",
            "serverSelectorThreads",
            "serverWorkerThreads",
            "transferMsgByHeap",
            "useEpollNativeSelector",
            "writeBufferHighWaterMark",
            "writeBufferLowWaterMark",
        ),
        NO_NETTY,
    ),
    **dict.fromkeys(
        (
            "debugLockEnable",
            "putMsgIndexHightWater",
            "useReentrantLockWhenPutMessage",
        ),
        NO_LOCKS,
    ),
    **dict.fromkeys(
        (
            "dLegerGroup",
            "dLegerPeers",
            "dLegerSelfId",
            "enableBatchPush",
            "preferredLeaderId",
            "storePathDLedgerCommitLog",
        ),
        NO_DLEDGER,
    ),
    "maxLmqConsumeQueueNum": NO_LIGHT_QUEUES,
    **dict.fromkeys(
        (
            "commercialBaseCount",
            "commercialBigCount",
            "commercialEnable",
            "commercialTimerCount",
            "commercialTransCount",
        ),
        NO_BILLING,
    ),
    # Deleting a topic deletes its counters, and a log file has one line per event.
    **dict.fromkeys(("autoDeleteUnusedStats", "diskFallRecorded", "isolateLogEnable"), ALWAYS),
    **dict.fromkeys(
        (
            "configStorePath",
            "destroyMapedFileIntervalForcibly",
            "enableScheduleAsyncDeliver",
            "flushConsumerOffsetHistoryInterval",
            "forceVerifyPropCRC",
            "highSpeedMode",
            "maxDelayTime",
            "messageIndexSafe",
            "redeleteHangedFileInterval",
            "rocketmqHome",
            "scheduleAsyncDeliverMaxPendingLimit",
            "scheduleAsyncDeliverMaxResendNum2Blocked",
        ),
        STEP_NOT_NEEDED,
    ),
}
"""Each key that is accepted without effect -> the reason."""


class OneValue(NamedTuple):
    """The only supported value, and the reason."""

    value: str
    reason: str


ONE_VALUE = {
    **dict.fromkeys(
        ("authenticationEnabled", "authorizationEnabled"),
        OneValue("false", "accounts come from plain_acl.yml; set aclEnable=true"),
    ),
    "clusterTest": OneValue("false", "routes of other environments aren't queried"),
    "duplicationEnable": OneValue("false", "duplicated dispatch isn't supported"),
    "enableControllerMode": OneValue(
        "false", "controllers aren't supported; an operator promotes a slave"
    ),
    "enableDLegerCommitLog": OneValue("false", NO_DLEDGER),
    "enableLmq": OneValue("false", NO_LIGHT_QUEUES),
    "enableMultiDispatch": OneValue("false", NO_LIGHT_QUEUES),
    "enableSlaveActingMaster": OneValue("false", NO_ACTING_MASTER),
    "filterServerNums": OneValue("0", "filter servers aren't supported"),
    "readOnlyCommitLogStorePaths": OneValue("", "only one commit log directory is supported"),
}

JAVA_CLASSES = dict.fromkeys(
    (
        "authenticationMetadataProvider",
        "authenticationProvider",
        "authenticationStrategy",
        "authorizationMetadataProvider",
        "authorizationProvider",
        "authorizationStrategy",
    ),
    "accessValidators",
)
"""Keys of 5.x that name Java classes -> the key with the same purpose here."""


def one_value_items() -> dict[str, str]:
    """Return the keys with a single supported value; tools fail on null if they are missing."""
    return {key: one.value for key, one in ONE_VALUE.items()}
