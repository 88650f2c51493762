"""The options of the `rocketmq` source, with their types; see rocketmq.py."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from analytics.errors import ReportError
from analytics.remote.access import MESSAGE_BYTES_MAX, ROUTE_POLL_S, Access
from analytics.sources.options import Mode, Options
from analytics.sources.queue_offsets import (
    EARLIEST,
    LATEST,
    parse_offsets,
    parse_queues,
    parse_times,
)
from analytics.store.decode import CheckCrc, RowFilter
from broker_core.message import names

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from analytics.remote.cluster import Queue

T = TypeVar("T")

FORMAT = "rocketmq"
OPTIONS = (
    "namesrvAddr",
    "subscribe",
    "subscribePattern",
    "assign",
    "startingOffsets",
    "endingOffsets",
    "startingTimestamp",
    "endingTimestamp",
    "startingOffsetsByTimestamp",
    "endingOffsetsByTimestamp",
    "startingOffsetsByTimestampStrategy",
    "minPartitions",
    "maxRecordsPerPartition",
    "maxOffsetsPerTrigger",
    "minOffsetsPerTrigger",
    "maxTriggerDelay",
    "failOnDataLoss",
    "mode",
    "includeHeaders",
    "includeSystemTopics",
    "decompress",
    "checkCrc",
    "consumerGroup",
    "accessKey",
    "secretKey",
    "secretKeyFile",
    "tls",
    "tlsCaFile",
    "tlsVerify",
    "timeoutMs",
    "fetchOffset.numRetries",
    "fetchOffset.retryIntervalMs",
    "rocketmq.pullBatchSize",
    "rocketmq.pollNameServerInterval",
    "rocketmq.sendMsgTimeout",
    "rocketmq.retryTimesWhenSendFailed",
    "rocketmq.maxMessageSize",
    "rocketmq.compressMsgBodyOverHowmuch",
    "topic",
    "producerGroup",
    "idempotenceScope",
)
# A stream passes its own options to the writer, too.
OF_SPARK = ("checkpointLocation",)
GROUP_DEFAULT = "TREBUCHET_SPARK"
TIMEOUT_MS_DEFAULT = 10_000
RETRIES_DEFAULT = 3
ROUTE_POLL_MS = int(ROUTE_POLL_S * 1000)
RETRY_INTERVAL_MS_DEFAULT = 1000
MAX_TRIGGER_DELAY_S_DEFAULT = 15 * 60.0
LATEST_STRATEGY, ERROR_STRATEGY = "latest", "error"
_WAYS = ("subscribe", "subscribePattern", "assign")


@dataclass(frozen=True, slots=True)
class ClusterOptions:
    """The options; at most one of the three ways to select queues is given.

    `starting` and `ending` are offsets by queue, or EARLIEST or LATEST for all; None by default.
    `starting_times` and `ending_times` are times by queue, in ms since epoch.
    """

    access: Access
    topics: frozenset[str] | None
    pattern: str | None
    queues: tuple[Queue, ...] | None
    starting: dict[Queue, int] | int | None
    ending: dict[Queue, int] | int | None
    starting_times: dict[Queue, int] | None
    ending_times: dict[Queue, int] | None
    fails_without_match: bool
    rows: RowFilter
    min_partitions: int
    max_records_per_partition: int | None
    max_offsets_per_trigger: int | None
    min_offsets_per_trigger: int | None
    max_trigger_delay_s: float
    fail_on_data_loss: bool
    mode: Mode | None
    include_headers: bool
    decompress: bool
    check_crc: CheckCrc
    consumer_group: str
    topic: str
    producer_group: str
    idempotence_scope: str

    @property
    def has_end(self) -> bool:
        """Whether an option sets the end of reading."""
        return (
            self.ending is not None or self.ending_times is not None or self.rows.to_ms is not None
        )

    def for_reading(self) -> ClusterOptions:
        """Return these options.

        Raises:
            ReportError: no option selects a topic.
        """
        if self.topics is None and self.pattern is None and self.queues is None:
            raise ReportError(f"{FORMAT} needs one of the options {', '.join(_WAYS)}.")
        return self


def parse_options(given: Mapping[str, str]) -> ClusterOptions:
    """Return the options with their types and defaults.

    Raises:
        ReportError: an option is unknown, missing or not valid.
    """
    if any(name.lower() == "path" for name in given):
        raise ReportError(f"{FORMAT} doesn't read a path. Name topics with the option subscribe.")
    options = Options(FORMAT, OPTIONS, given, of_spark=OF_SPARK)
    for one, other in (
        ("subscribe", "subscribePattern"),
        ("subscribe", "assign"),
        ("subscribePattern", "assign"),
        ("startingOffsets", "startingTimestamp"),
        ("startingOffsets", "startingOffsetsByTimestamp"),
        ("startingTimestamp", "startingOffsetsByTimestamp"),
        ("endingOffsets", "endingTimestamp"),
        ("endingOffsets", "endingOffsetsByTimestamp"),
        ("endingTimestamp", "endingOffsetsByTimestamp"),
        ("secretKey", "secretKeyFile"),
    ):
        if one in options and other in options:
            raise ReportError(f"{FORMAT}'s options {one} and {other} can't be combined.")
    most = options.number("maxOffsetsPerTrigger", least=1)
    least = options.number("minOffsetsPerTrigger", least=1)
    if most is not None and least is not None and least > most:
        raise options.refused("minOffsetsPerTrigger", f"at most maxOffsetsPerTrigger, {most}")
    return ClusterOptions(
        access=_access(options),
        topics=options.topics("subscribe"),
        pattern=_pattern(options),
        queues=_json(options, "assign", parse_queues, '{"TOPIC": {"BROKER": [0, 1]}}'),
        starting=_offsets(options, "startingOffsets", ("earliest", "latest")),
        ending=_offsets(options, "endingOffsets", ("latest",)),
        starting_times=_times(options, "startingOffsetsByTimestamp"),
        ending_times=_times(options, "endingOffsetsByTimestamp"),
        fails_without_match=options.one_of(
            "startingOffsetsByTimestampStrategy", [LATEST_STRATEGY, ERROR_STRATEGY]
        )
        == ERROR_STRATEGY,
        rows=RowFilter(
            include_system_topics=options.truth("includeSystemTopics", default=False),
            from_ms=options.number("startingTimestamp"),
            to_ms=options.number("endingTimestamp"),
        ),
        min_partitions=options.number("minPartitions", least=1) or 0,
        max_records_per_partition=options.number("maxRecordsPerPartition", least=1),
        max_offsets_per_trigger=most,
        min_offsets_per_trigger=least,
        max_trigger_delay_s=options.seconds("maxTriggerDelay", MAX_TRIGGER_DELAY_S_DEFAULT),
        fail_on_data_loss=options.truth("failOnDataLoss", default=True),
        mode=options.mode(),
        include_headers=options.truth("includeHeaders", default=True),
        decompress=options.truth("decompress", default=False),
        check_crc=CheckCrc(options.one_of("checkCrc", [each.value for each in CheckCrc])),
        consumer_group=_group(options, "consumerGroup"),
        topic=_topic(options),
        producer_group=_group(options, "producerGroup"),
        idempotence_scope=options.text("idempotenceScope"),
    )


def _access(options: Options) -> Access:
    addresses = tuple(
        part.strip() for part in options.text("namesrvAddr").split(";") if part.strip()
    )
    if not addresses:
        raise ReportError(
            f"{FORMAT} needs the option namesrvAddr: host:port of each name server, separated "
            "by semicolons."
        )
    for address in addresses:
        host, _, port = address.rpartition(":")
        if not host or not (port.isascii() and port.isdigit() and 0 < int(port) < 65_536):
            raise options.refused("namesrvAddr", "host:port, several separated by semicolons")
    send_ms = options.number("rocketmq.sendMsgTimeout", least=1)
    return Access(
        namesrv_addr=addresses,
        access_key=options.text("accessKey"),
        secret_key=options.text("secretKey"),
        secret_key_file=options.text("secretKeyFile"),
        tls=options.truth("tls", default=False),
        tls_ca_file=options.text("tlsCaFile"),
        tls_verify=options.truth("tlsVerify", default=True),
        timeout_s=(options.number("timeoutMs", least=1) or TIMEOUT_MS_DEFAULT) / 1000,
        retries=options.number_or("fetchOffset.numRetries", RETRIES_DEFAULT),
        retry_interval_s=options.number_or("fetchOffset.retryIntervalMs", RETRY_INTERVAL_MS_DEFAULT)
        / 1000,
        route_poll_s=options.number_or("rocketmq.pollNameServerInterval", ROUTE_POLL_MS, least=1)
        / 1000,
        pull_batch_size=options.number("rocketmq.pullBatchSize", least=1),
        send_timeout_s=None if send_ms is None else send_ms / 1000,
        send_retries=options.number_or("rocketmq.retryTimesWhenSendFailed", RETRIES_DEFAULT),
        message_bytes_max=options.number_or("rocketmq.maxMessageSize", MESSAGE_BYTES_MAX, least=1),
        compress_over=options.number("rocketmq.compressMsgBodyOverHowmuch", least=1),
    )


def _pattern(options: Options) -> str | None:
    if "subscribePattern" not in options:
        return None
    text = options.text("subscribePattern")
    try:
        re.compile(text)
    except re.error as error:
        raise options.refused("subscribePattern", f"a regular expression: {error}") from None
    return text


def _offsets(options: Options, name: str, words: tuple[str, ...]) -> dict[Queue, int] | int | None:
    text = options.text(name).strip()
    if not text:
        return None
    if text.lower() in words:
        return {"earliest": EARLIEST, "latest": LATEST}[text.lower()]
    return _json(
        options,
        name,
        parse_offsets,
        f'{", ".join(words)} or {{"TOPIC": {{"BROKER": {{"0": 23}}}}}}',
    )


def _times(options: Options, name: str) -> dict[Queue, int] | None:
    return _json(options, name, parse_times, '{"TOPIC": {"BROKER": {"0": 1795251442000}}}')


def _json(options: Options, name: str, parse: Callable[[str], T], form: str) -> T | None:
    if name not in options:
        return None
    try:
        return parse(options.text(name))
    except (ValueError, RecursionError) as error:
        raise options.refused(name, f"{form}: {error}") from None


def _group(options: Options, name: str) -> str:
    group = options.text(name, GROUP_DEFAULT)
    wrong = names.check_group(group)
    if wrong is not None:
        raise options.refused(name, f"the name of a group: {wrong}")
    return group


def _topic(options: Options) -> str:
    topic = options.text("topic")
    wrong = names.check_topic(topic) if "topic" in options else None
    if wrong is not None:
        raise options.refused("topic", f"the name of a topic: {wrong}")
    return topic
