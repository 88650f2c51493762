"""The options of the `rocketmq` source, with their types; see analytics.sources.rocketmq."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from analytics.errors import ReportError
from analytics.remote.access import Access
from analytics.sources.options import Options
from analytics.sources.queue_offsets import EARLIEST, LATEST, parse_offsets, parse_queues
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
    "minPartitions",
    "maxOffsetsPerTrigger",
    "failOnDataLoss",
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
    "topic",
    "producerGroup",
    "idempotenceScope",
)
# A stream that is written hands its own options to the writer, too.
OF_SPARK = ("checkpointLocation",)
GROUP_DEFAULT = "TREBUCHET_SPARK"
TIMEOUT_MS_DEFAULT = 10_000
_WAYS = ("subscribe", "subscribePattern", "assign")


@dataclass(frozen=True, slots=True)
class Wanted:
    """What was asked for; of the three ways to name queues, at most one is given.

    `starting` and `ending` are offsets by queue, or EARLIEST or LATEST for all; None by default.
    """

    access: Access
    topics: frozenset[str] | None
    pattern: str | None
    queues: tuple[Queue, ...] | None
    starting: dict[Queue, int] | int | None
    ending: dict[Queue, int] | int | None
    rows: RowFilter
    min_partitions: int
    max_offsets_per_trigger: int | None
    fail_on_data_loss: bool
    include_headers: bool
    decompress: bool
    check_crc: CheckCrc
    consumer_group: str
    topic: str
    producer_group: str
    idempotence_scope: str

    def for_reading(self) -> Wanted:
        """Return itself.

        Raises:
            ReportError: no topic is named.
        """
        if self.topics is None and self.pattern is None and self.queues is None:
            raise ReportError(f"{FORMAT} needs one of the options {', '.join(_WAYS)}.")
        return self


def parse_options(given: Mapping[str, str]) -> Wanted:
    """Return the options with their types and defaults.

    Raises:
        ReportError: one is unknown, missing, or not what it must be.
    """
    if any(name.lower() == "path" for name in given):
        raise ReportError(f"{FORMAT} reads no path; topics are named by the option subscribe.")
    options = Options(FORMAT, OPTIONS, given, of_spark=OF_SPARK)
    for one, other in (
        ("subscribe", "subscribePattern"),
        ("subscribe", "assign"),
        ("subscribePattern", "assign"),
        ("startingOffsets", "startingTimestamp"),
        ("endingOffsets", "endingTimestamp"),
        ("secretKey", "secretKeyFile"),
    ):
        if one in options and other in options:
            raise ReportError(f"{FORMAT}'s options {one} and {other} exclude each other.")
    return Wanted(
        access=_access(options),
        topics=options.topics("subscribe"),
        pattern=_pattern(options),
        queues=_json(options, "assign", parse_queues, '{"TOPIC": {"BROKER": [0, 1]}}'),
        starting=_offsets(options, "startingOffsets", ("earliest", "latest")),
        ending=_offsets(options, "endingOffsets", ("latest",)),
        rows=RowFilter(
            include_system_topics=options.truth("includeSystemTopics", default=False),
            from_ms=options.number("startingTimestamp"),
            to_ms=options.number("endingTimestamp"),
        ),
        min_partitions=options.number("minPartitions", least=1) or 0,
        max_offsets_per_trigger=options.number("maxOffsetsPerTrigger", least=1),
        fail_on_data_loss=options.truth("failOnDataLoss", default=True),
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
            f"{FORMAT} needs the option namesrvAddr: host:port of the name servers, with "
            "semicolons between them."
        )
    for address in addresses:
        host, _, port = address.rpartition(":")
        if not host or not (port.isascii() and port.isdigit() and 0 < int(port) < 65_536):
            raise options.refused("namesrvAddr", "host:port, with semicolons between several")
    return Access(
        namesrv_addr=addresses,
        access_key=options.text("accessKey"),
        secret_key=options.text("secretKey"),
        secret_key_file=options.text("secretKeyFile"),
        tls=options.truth("tls", default=False),
        tls_ca_file=options.text("tlsCaFile"),
        tls_verify=options.truth("tlsVerify", default=True),
        timeout_s=(options.number("timeoutMs", least=1) or TIMEOUT_MS_DEFAULT) / 1000,
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
