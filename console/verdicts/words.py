"""What a verdict says in words: its name, its evidence, a likely cause, the next step, a link."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import urlencode

from django.urls import reverse
from django.utils.translation import gettext as _, gettext_lazy

from console.history.places import place_of
from console.verdicts import evidence

if TYPE_CHECKING:
    from collections.abc import Callable

    from django.utils.functional import Promise

    from console.verdicts.judge import Verdict


class Words(NamedTuple):
    """A rule's words; `evidence` makes the sentence of the numbers."""

    title: Promise
    evidence: Callable[[evidence.Evidence], str]
    cause: Promise
    step: Promise


class Link(NamedTuple):
    """A page that shows what a verdict speaks of."""

    label: str
    url: str


@dataclass(frozen=True, slots=True)
class Shown:
    """A verdict as pages show it."""

    verdict: Verdict
    subject: str
    title: str
    evidence: str
    cause: str
    step: str
    url: str
    links: tuple[Link, ...] = ()
    detail: str = ""
    """What names the trouble and is no sentence: a key, for those who may see messages of it."""

    @property
    def state(self) -> str:
        return self.verdict.severity


WORDS: dict[str, Words] = {
    "mismatch": Words(
        gettext_lazy("Members subscribe to different things"),
        evidence.mismatch,
        gettext_lazy(
            "Programs of one group that are not the same, or an old version that still runs. The "
            "broker keeps the last heartbeat's subscription for all of them, so messages are "
            "skipped or stay unread."
        ),
        gettext_lazy("Let all members subscribe to the same, or give each kind its own group."),
    ),
    "many-versions": Words(
        gettext_lazy("Clients of many versions"),
        evidence.many_versions,
        gettext_lazy(
            "A deployment that did not reach every member. Versions may share out the queues in "
            "different ways."
        ),
        gettext_lazy("Bring all members to one version."),
    ),
    "hot-queue": Words(
        gettext_lazy("A hot queue"),
        evidence.hot_queue,
        gettext_lazy(
            "Producers choose the queue by a value that is mostly the same, or one of them sends "
            "to a single queue."
        ),
        gettext_lazy(
            "Choose queues by a value with many different ones; only one member of a group reads "
            "a queue."
        ),
    ),
    "hot-key": Words(
        gettext_lazy("A hot key"),
        evidence.hot_key,
        gettext_lazy(
            "Producers set a constant or a category as key, or one customer sends most of it."
        ),
        gettext_lazy(
            "Use as key what tells messages apart: a search by this one finds too many, and "
            "messages in order by it wait for each other."
        ),
    ),
    "near-limit": Words(
        gettext_lazy("Messages near the size limit"),
        evidence.near_limit,
        gettext_lazy("Bodies that grow, such as lists or documents without a bound."),
        gettext_lazy(
            "Send a reference to what is large, or raise maxMessageSize here and in producers "
            "and consumers."
        ),
    ),
    "clock-off": Words(
        gettext_lazy("A client's clock is wrong"),
        evidence.clock_off,
        gettext_lazy(
            "Its machine does not keep time (NTP); when all clients are off, it is the broker's."
        ),
        gettext_lazy("Set the clock right: latencies and searches by time are wrong until then."),
    ),
    "cold-reads": Words(
        gettext_lazy("Reads from the disk"),
        evidence.cold_reads,
        gettext_lazy(
            "What the group reads has left memory: it is far behind, after a reset or a long "
            "stop, or something else on the machine needed the memory."
        ),
        gettext_lazy(
            "Wait if the lag shrinks. Otherwise add members, or let slaves serve such reads "
            "(slaveReadEnable)."
        ),
    ),
    "few-replicas": Words(
        gettext_lazy("Not enough replicas in sync"),
        evidence.few_replicas,
        gettext_lazy(
            "Slaves are down or too far behind, and the master refuses messages that too few "
            "brokers would have (minInSyncReplicas)."
        ),
        gettext_lazy(
            "Bring slaves back. If messages must be taken before that, lower minInSyncReplicas."
        ),
    ),
    "slave-gone": Words(
        gettext_lazy("A slave is gone"),
        evidence.slave_gone,
        gettext_lazy("It has ended, its disk is full, or the network between the two is cut."),
        gettext_lazy("Look at the slave's log. Until it is back, messages are on fewer disks."),
    ),
    "slave-behind": Words(
        gettext_lazy("A slave is behind"),
        evidence.slave_behind,
        gettext_lazy("Its disk or the network is slower than what the master takes."),
        gettext_lazy(
            "Compare the disks and the network of both. After a promotion, what it lacks would "
            "be missing."
        ),
    ),
    "queue-stuck": Words(
        gettext_lazy("One queue is stuck"),
        evidence.queue_stuck,
        gettext_lazy("Most often one message that its consumer cannot finish (a poison message)."),
        gettext_lazy(
            "Look at the message at the group's offset of this queue, and at the log of "
            "the member that has the queue."
        ),
    ),
    "stopped": Words(
        gettext_lazy("Consuming has stopped"),
        evidence.stopped,
        gettext_lazy(
            "The members are connected and take nothing: blocked threads, a full pool, a "
            "database that they wait for."
        ),
        gettext_lazy("Take a thread dump of a member, or start it anew."),
    ),
    "stalled": Words(
        gettext_lazy("Connected and not consuming"),
        evidence.stalled,
        gettext_lazy(
            "Consuming is switched off or paused, or the members subscribe to another "
            "topic or tag than the group has unread messages of."
        ),
        gettext_lazy(
            "Compare the group's subscriptions with its unread topics; see whether consuming is on."
        ),
    ),
    "falling-behind": Words(
        gettext_lazy("Falls behind"),
        evidence.falling_behind,
        gettext_lazy(
            "More comes than the members manage: fewer members, slower work on each "
            "message, or more traffic."
        ),
        gettext_lazy(
            "Compare members and rates in the history below; add members up to the "
            "number of queues."
        ),
    ),
    "retention": Words(
        gettext_lazy("Unread messages are about to be deleted"),
        evidence.retention,
        gettext_lazy(
            "The group is further behind than the broker keeps messages (fileReservedTime)."
        ),
        gettext_lazy(
            "Let the group catch up, or keep messages longer: raise fileReservedTime "
            "while the disk has room."
        ),
    ),
    "rewound": Words(
        gettext_lazy("Consumes again"),
        evidence.rewound,
        gettext_lazy(
            "Somebody reset the offsets, or a member committed an older one than another "
            "had before."
        ),
        gettext_lazy(
            "If nobody meant it, see the audit for a reset and let members start with "
            "one client version."
        ),
    ),
    "no-consumer": Words(
        gettext_lazy("Nobody consumes"),
        evidence.no_consumer,
        gettext_lazy("All members have ended or lost their connection."),
        gettext_lazy(
            "Start a member. If the group is not needed any more, delete it with its offsets."
        ),
    ),
    "dead-letters": Words(
        gettext_lazy("Dead letters grow"),
        evidence.dead_letters,
        gettext_lazy(
            "The consumer failed on these messages each time, up to the retries that the "
            "group allows."
        ),
        gettext_lazy("Look at the group's dead letter topic: what do these messages share?"),
    ),
    "many-retries": Words(
        gettext_lazy("Many retries"),
        evidence.many_retries,
        gettext_lazy(
            "The consumer fails on them: something that it calls is down, or answers slowly."
        ),
        gettext_lazy(
            "Look at the consumer's log. What is retried too often becomes a dead letter."
        ),
    ),
    "puts-fail": Words(
        gettext_lazy("Messages are not stored"),
        evidence.puts_fail,
        gettext_lazy("The disk is full or fails, or the broker is being stopped."),
        gettext_lazy("Look at the broker's log and at its disk at once."),
    ),
    "requests-refused": Words(
        gettext_lazy("Requests are refused"),
        evidence.requests_refused,
        gettext_lazy(
            "A client has a wrong access key or lacks a permission, or somebody is guessing keys."
        ),
        gettext_lazy(
            'Search the broker\'s log for "request refused": it names the reason, the access key '
            "and the address."
        ),
    ),
    "disk-fills": Words(
        gettext_lazy("The disk fills"),
        evidence.disk_fills,
        gettext_lazy("More is stored than is deleted after fileReservedTime."),
        gettext_lazy(
            "Keep messages for a shorter time, or add space: from 85 % on the broker deletes early."
        ),
    ),
    "slow-flush": Words(
        gettext_lazy("The disk is slow"),
        evidence.slow_flush,
        gettext_lazy("Another program writes to the same disk, or the disk itself slows down."),
        gettext_lazy("See who writes (iotop), and the disk's own health."),
    ),
    "half-messages": Words(
        gettext_lazy("Transactions pile up"),
        evidence.half_messages,
        gettext_lazy(
            "Producers do not end their transactions and do not answer the broker's checks."
        ),
        gettext_lazy(
            "Look at the producers of transactions: are members of their group connected?"
        ),
    ),
}


def shown(verdict: Verdict) -> Shown | None:
    """Return a verdict in words; None for a rule that this version does not know."""
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
    """Return the pages that show what a verdict speaks of, besides its subject's."""
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
    """Return the page of the message that a verdict names; nothing where it names none."""
    names = verdict.names
    topic = topic or names.get("message_topic", "")
    queue = names.get("message_queue", f"{verdict.evidence.get('queue', -1):.0f}")
    offset = names.get("message_offset", names.get("offset", ""))
    if not (topic and queue.isdecimal() and offset.isdecimal()):
        return []
    arguments = [verdict.broker, int(queue), int(offset), topic]
    return [Link(_("The message"), reverse("browse:message", args=arguments))]
