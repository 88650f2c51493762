"""Keys of the original that steer nothing here: accepted without effect, or refused.

A value is refused when it promises what is not served: whoever names an authentication provider
must not get a broker without access control.
"""

from __future__ import annotations

from typing import NamedTuple

NO_THREAD_POOLS = "one event loop has no thread pools and no queues before them"
NO_NETTY = "buffers, selectors and semaphores are netty's"
NO_LOCKS = "one writer needs no put lock"
NO_DLEDGER = "DLedger is not served"
NO_ACTING_MASTER = "a slave serves reads without its master as it is, and takes writes by promotion"
NO_LIGHT_QUEUES = "light queues are not served"
NO_BILLING = "nobody is billed"
ALWAYS = "it is always done here"
NO_SUCH_STEP = "the step that it steers is not needed here"

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
    # The counters of a deleted topic go, a log file has one line for each event.
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
        NO_SUCH_STEP,
    ),
}
"""Each key that is accepted without effect, and why it has none."""


class OneValue(NamedTuple):
    """The one value that is served, and why no other."""

    value: str
    reason: str


ONE_VALUE = {
    **dict.fromkeys(
        ("authenticationEnabled", "authorizationEnabled"),
        OneValue("false", "accounts are those of plain_acl.yml: set aclEnable=true"),
    ),
    "clusterTest": OneValue("false", "no other environment is asked for routes"),
    "duplicationEnable": OneValue("false", "duplicated dispatch is not served"),
    "enableControllerMode": OneValue(
        "false", "no controller is served; an operator promotes a slave"
    ),
    "enableDLegerCommitLog": OneValue("false", NO_DLEDGER),
    "enableLmq": OneValue("false", NO_LIGHT_QUEUES),
    "enableMultiDispatch": OneValue("false", NO_LIGHT_QUEUES),
    "enableSlaveActingMaster": OneValue("false", NO_ACTING_MASTER),
    "filterServerNums": OneValue("0", "filter servers are not served"),
    "readOnlyCommitLogStorePaths": OneValue("", "one commit log directory is served"),
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
"""Keys of 5.x that name Java classes, each with ours for what they do."""


def one_value_items() -> dict[str, str]:
    """Return the keys that have one value here; tools fail on null where they miss one."""
    return {key: one.value for key, one in ONE_VALUE.items()}
