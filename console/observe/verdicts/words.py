"""The wording of a verdict: its name, evidence, likely cause, next step and links."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import urlencode

from django.urls import reverse
from django.utils.translation import gettext as _, gettext_lazy

from console.observe.history.metrics import GROUP, PROGRESS
from console.observe.history.places import place_of
from console.observe.verdicts import evidence

if TYPE_CHECKING:
    from collections.abc import Callable

    from django.utils.functional import Promise

    from console.observe.verdicts.judge import Verdict


class Words(NamedTuple):
    """A rule's texts; `evidence` builds the sentence from the numbers."""

    title: Promise
    evidence: Callable[[evidence.Evidence], str]
    cause: Promise
    step: Promise


class Link(NamedTuple):
    """A page with details about a verdict."""

    label: str
    url: str


@dataclass(frozen=True, slots=True)
class Shown:
    """A verdict as displayed on pages."""

    verdict: Verdict
    subject: str
    title: str
    evidence: str
    cause: str
    step: str
    url: str
    links: tuple[Link, ...] = ()
    detail: str = ""
    """The culprit if it isn't a sentence: a key, for people who can see messages with it."""

    @property
    def state(self) -> str:
        return self.verdict.severity

    @property
    def kind(self) -> str:
        """The kind of subject whose page shows it; a progress is its group's."""
        return GROUP if self.verdict.kind == PROGRESS else self.verdict.kind


WORDS: dict[str, Words] = {
    "mismatch": Words(
        gettext_lazy("Consumers have different subscriptions"),
        evidence.mismatch,
        gettext_lazy(
            "The group contains different programs, or an old version is still running. The "
            "broker applies the most recent heartbeat's subscription to the whole group, so "
            "messages are skipped or stay unread."
        ),
        gettext_lazy(
            "Give all consumers the same subscription, or use a separate group for each program."
        ),
    ),
    "many-versions": Words(
        gettext_lazy("Many client versions"),
        evidence.many_versions,
        gettext_lazy(
            "A deployment didn't reach every consumer. Client versions may assign queues "
            "differently."
        ),
        gettext_lazy("Upgrade all consumers to the same version."),
    ),
    "hot-queue": Words(
        gettext_lazy("Hot queue"),
        evidence.hot_queue,
        gettext_lazy(
            "Producers pick the queue by a value that is mostly the same, or one producer "
            "sends to a single queue."
        ),
        gettext_lazy(
            "Pick queues by a value with many distinct values. Only one consumer of a group "
            "reads each queue."
        ),
    ),
    "hot-key": Words(
        gettext_lazy("Hot key"),
        evidence.hot_key,
        gettext_lazy(
            "Producers use a constant or a category as the key, or one customer accounts for "
            "most of the traffic."
        ),
        gettext_lazy(
            "Use a key that is different for each message. Searching for this key returns too "
            "many messages, and ordered messages with the same key wait for each other."
        ),
    ),
    "near-limit": Words(
        gettext_lazy("Messages near the size limit"),
        evidence.near_limit,
        gettext_lazy(
            "Message bodies are growing, for example lists or documents without a size limit."
        ),
        gettext_lazy(
            "Send a reference to large data, or raise maxMessageSize here and in producers and "
            "consumers."
        ),
    ),
    "clock-off": Words(
        gettext_lazy("Wrong client clock"),
        evidence.clock_off,
        gettext_lazy(
            "The client's machine isn't synchronised (NTP). If all clients are off, the "
            "broker's clock is wrong."
        ),
        gettext_lazy("Correct the clock. Until then, latencies and searches by time are wrong."),
    ),
    "cold-reads": Words(
        gettext_lazy("Reads from disk"),
        evidence.cold_reads,
        gettext_lazy(
            "The messages the group reads are no longer in memory. The group is far behind, "
            "was reset or stopped for a long time, or another program used the memory."
        ),
        gettext_lazy(
            "If the lag is shrinking, wait. Otherwise add consumers, or let slaves serve these "
            "reads (slaveReadEnable)."
        ),
    ),
    "few-replicas": Words(
        gettext_lazy("Not enough replicas in sync"),
        evidence.few_replicas,
        gettext_lazy(
            "Slaves are down or too far behind, so the master rejects messages that too few "
            "replicas would store (minInSyncReplicas)."
        ),
        gettext_lazy(
            "Restore the slaves. If messages must be accepted sooner, lower minInSyncReplicas."
        ),
    ),
    "slave-gone": Words(
        gettext_lazy("Slave disconnected"),
        evidence.slave_gone,
        gettext_lazy(
            "The slave stopped, its disk is full, or the network between master and slave is down."
        ),
        gettext_lazy("Check the slave's log. Until it's back, messages are on fewer disks."),
    ),
    "slave-behind": Words(
        gettext_lazy("Slave behind"),
        evidence.slave_behind,
        gettext_lazy("The slave's disk or network is slower than the master's write rate."),
        gettext_lazy(
            "Compare disk and network on both machines. If you promote this slave now, the "
            "missing messages are lost."
        ),
    ),
    "queue-stuck": Words(
        gettext_lazy("Queue stuck"),
        evidence.queue_stuck,
        gettext_lazy(
            "Usually a single message that the consumer can't process (a poison message)."
        ),
        gettext_lazy(
            "Check the message at the group's offset in this queue, and the log of the "
            "consumer that owns the queue."
        ),
    ),
    "stopped": Words(
        gettext_lazy("Consumption stopped"),
        evidence.stopped,
        gettext_lazy(
            "Consumers are connected but aren't processing messages: blocked threads, an "
            "exhausted pool, or a slow database."
        ),
        gettext_lazy("Take a thread dump of a consumer, or restart it."),
    ),
    "stalled": Words(
        gettext_lazy("Connected but not consuming"),
        evidence.stalled,
        gettext_lazy(
            "Consuming is off or paused, or the consumers subscribe to a different topic or "
            "tag than the unread messages have."
        ),
        gettext_lazy(
            "Compare the group's subscriptions with its unread topics, and check that "
            "consuming is allowed."
        ),
    ),
    "falling-behind": Words(
        gettext_lazy("Falling behind"),
        evidence.falling_behind,
        gettext_lazy(
            "More messages arrive than the consumers can process: fewer consumers, slower "
            "processing, or more traffic."
        ),
        gettext_lazy(
            "Compare consumers and rates in the history below. Add consumers, up to the number "
            "of queues."
        ),
    ),
    "retention": Words(
        gettext_lazy("Unread messages about to be deleted"),
        evidence.retention,
        gettext_lazy("The group is further behind than the broker's retention (fileReservedTime)."),
        gettext_lazy("Let the group catch up, or raise fileReservedTime while there's disk space."),
    ),
    "rewound": Words(
        gettext_lazy("Rewound"),
        evidence.rewound,
        gettext_lazy(
            "Someone reset the offsets, or a consumer committed an older offset than another "
            "consumer had."
        ),
        gettext_lazy(
            "If this wasn't intended, check the audit log for a reset and make sure all "
            "consumers use the same client version."
        ),
    ),
    "no-consumer": Words(
        gettext_lazy("No consumers"),
        evidence.no_consumer,
        gettext_lazy("All consumers have stopped or lost their connection."),
        gettext_lazy(
            "Start a consumer. If the group is no longer needed, delete it with its offsets."
        ),
    ),
    "dead-letters": Words(
        gettext_lazy("Dead letters growing"),
        evidence.dead_letters,
        gettext_lazy(
            "The consumer failed on these messages every time, up to the group's retry limit."
        ),
        gettext_lazy(
            "Open the group's dead-letter topic and look for what these messages have in common."
        ),
    ),
    "many-retries": Words(
        gettext_lazy("Many retries"),
        evidence.many_retries,
        gettext_lazy("The consumer fails on these messages: a service it calls is down or slow."),
        gettext_lazy(
            "Check the consumer's log. A message that exceeds its retry limit becomes a dead "
            "letter."
        ),
    ),
    "puts-fail": Words(
        gettext_lazy("Messages not stored"),
        evidence.puts_fail,
        gettext_lazy("The disk is full or failing, or the broker is shutting down."),
        gettext_lazy("Check the broker's log and disk now."),
    ),
    "requests-refused": Words(
        gettext_lazy("Requests rejected"),
        evidence.requests_refused,
        gettext_lazy(
            "A client has a wrong access key or lacks a permission, or someone is guessing keys."
        ),
        gettext_lazy(
            'Search the broker\'s log for "request refused". The line names the reason, the '
            "access key and the address."
        ),
    ),
    "disk-fills": Words(
        gettext_lazy("Disk filling up"),
        evidence.disk_fills,
        gettext_lazy("More data is stored than fileReservedTime deletes."),
        gettext_lazy(
            "Reduce the retention or add space. From 85 % on, the broker deletes messages early."
        ),
    ),
    "slow-flush": Words(
        gettext_lazy("Slow disk"),
        evidence.slow_flush,
        gettext_lazy("Another program is writing to the same disk, or the disk itself is slow."),
        gettext_lazy("Find the program that is writing (iotop), and check the disk's health."),
    ),
    "half-messages": Words(
        gettext_lazy("Transactions piling up"),
        evidence.half_messages,
        gettext_lazy(
            "Producers don't complete their transactions and don't answer the broker's checks."
        ),
        gettext_lazy("Check the producer group: is at least one producer connected?"),
    ),
}


def shown(verdict: Verdict) -> Shown | None:
    """Return a verdict in words, or None for a rule that this version doesn't have."""
    words = WORDS.get(verdict.rule)
    if words is None:
        return None
    try:
        evidence = words.evidence(verdict.names | verdict.evidence)
    except (KeyError, ValueError):
        return None
    subject, url = place_of(verdict.kind, verdict.broker, verdict.name)
    return Shown(
        verdict,
        subject,
        str(words.title),
        evidence,
        str(words.cause),
        str(words.step),
        url,
        links_of(verdict),
        verdict.names.get("key", ""),
    )


def links_of(verdict: Verdict) -> tuple[Link, ...]:
    """Return the pages with details about a verdict, besides its subject's page."""
    group, _at, topic = verdict.name.partition("@")
    query = urlencode({"group": group, "topic": topic})
    offsets = Link(_("Offsets"), f"{reverse('offsets:index')}?{query}")
    match verdict.rule:
        case "queue-stuck":
            links = [*message_link(verdict, topic), offsets]
        case "rewound" | "falling-behind" | "cold-reads" | "stopped" | "stalled":
            links = [offsets]
        case "dead-letters":
            dead = Link(_("Dead letters"), reverse("dead_letters:group", args=[verdict.name]))
            links = [dead, *message_link(verdict)]
        case "many-retries" | "near-limit":
            links = message_link(verdict)
        case "hot-key" | "hot-queue":
            query = urlencode({"topic": verdict.name})
            links = [Link(_("Messages"), f"{reverse('browse:search')}?{query}")]
        case _other:
            links = []
    return tuple(links)


def message_link(verdict: Verdict, topic: str = "") -> list[Link]:
    """Return a link to the message that a verdict names, if any."""
    names = verdict.names
    topic = topic or names.get("message_topic", "")
    queue = names.get("message_queue", f"{verdict.evidence.get('queue', -1):.0f}")
    offset = names.get("message_offset", names.get("offset", ""))
    if not (topic and queue.isdecimal() and offset.isdecimal()):
        return []
    arguments = [verdict.broker, int(queue), int(offset), topic]
    return [Link(_("Message"), reverse("browse:message", args=arguments))]
