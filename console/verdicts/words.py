"""What a verdict says in words: its name, its evidence, a likely cause, the next step, a link."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import urlencode

from django.urls import reverse
from django.utils.translation import gettext as _, gettext_lazy, ngettext

from console.history import metrics
from console.ui.templatetags.ui import bytes_text, duration, grouped, rate

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    from django.utils.functional import Promise

    from console.verdicts.judge import Verdict

    # Numbers, and the names that show what they are of.
    Evidence = Mapping[str, Any]


DLQ_PREFIX = "%DLQ%"


class Words(NamedTuple):
    """A rule's words; `evidence` makes the sentence of the numbers."""

    title: Promise
    evidence: Callable[[Evidence], str]
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
    """What names the trouble and is no sentence: a key."""

    @property
    def state(self) -> str:
        return self.verdict.severity


def number(value: float) -> str:
    return grouped(round(value))


def span(milliseconds: float) -> str:
    return str(duration(milliseconds / 1000))


def came_back(seen: Evidence) -> str:
    """Return which message came back most often, in a sentence; nothing where none is known."""
    times = int(seen.get("times", "0"))
    if not times or not seen.get("message"):
        return ""
    return " " + ngettext(
        "Message %(message)s came back %(times)d time.",
        "Message %(message)s came back %(times)d times.",
        times,
    ) % {"message": seen["message"], "times": times}


def poison(seen: Evidence) -> str:
    """Return the message at which a queue stands, in a sentence."""
    if "offset" not in seen:
        return ""
    said = {
        "message": seen.get("message") or _("without an id"),
        "offset": seen["offset"],
        "size": bytes_text(int(seen["bytes"])),
        "host": seen["host"],
    }
    first = _("It is message %(message)s at offset %(offset)s: %(size)s, from %(host)s.") % said
    return f" {first}{came_back(seen)}"


def queue_stuck(seen: Evidence) -> str:
    said = ngettext(
        "Queue %(queue)d has stood at the same message for %(age)s with %(lag)s unread; "
        "other queues move on.",
        "%(count)d queues stand still; queue %(queue)d has stood at the same message for %(age)s "
        "with %(lag)s unread.",
        int(seen["count"]),
    ) % {
        "count": seen["count"],
        "queue": seen["queue"],
        "age": span(seen["age_ms"]),
        "lag": number(seen["lag"]),
    }
    return said + poison(seen)


def stopped(seen: Evidence) -> str:
    return _("Nothing consumed for %(minutes)d min; %(lag)s messages are unread.") % {
        "minutes": seen["minutes"],
        "lag": number(seen["lag"]),
    }


def stalled(seen: Evidence) -> str:
    return _(
        "%(members)d members, %(lag)s unread messages, the oldest %(age)s old: "
        "nothing consumed in half an hour and more."
    ) % {
        "members": seen["members"],
        "lag": number(seen["lag"]),
        "age": span(seen["age_ms"]),
    }


def falling_behind(seen: Evidence) -> str:
    return _(
        "Lag %(before)s → %(now)s in %(minutes)d min, while %(consumed)s msg/s are consumed."
    ) % {
        "before": number(seen["before"]),
        "now": number(seen["now"]),
        "minutes": seen["minutes"],
        "consumed": rate(seen["consumed"]),
    }


def retention(seen: Evidence) -> str:
    said = {
        "lag": number(seen["lag"]),
        "kept": span(seen["kept_ms"]),
        "left": span(seen["left_ms"]),
    }
    if not seen["left_ms"]:
        return _("Messages are deleted unread after %(kept)s; %(lag)s are unread now.") % said
    return (
        _("In %(left)s the oldest of %(lag)s unread messages is deleted; they are kept %(kept)s.")
        % said
    )


def rewound(seen: Evidence) -> str:
    return _("Offsets went back by %(count)s messages within %(minutes)d min.") % {
        "count": number(seen["count"]),
        "minutes": seen["minutes"],
    }


def no_consumer(seen: Evidence) -> str:
    return _("No member is connected; %(lag)s messages are unread, the oldest %(age)s old.") % {
        "lag": number(seen["lag"]),
        "age": span(seen["age_ms"]),
    }


def dead_letters(seen: Evidence) -> str:
    count = round(seen["count"])
    said = ngettext(
        "%(count)s message was given up within %(minutes)d min.",
        "%(count)s messages were given up within %(minutes)d min.",
        count,
    ) % {"count": grouped(count), "minutes": seen["minutes"]}
    return said + came_back(seen)


def many_retries(seen: Evidence) -> str:
    said = _(
        "%(count)s messages came back within %(minutes)d min: %(share)d %% of those consumed."
    ) % {
        "count": number(seen["count"]),
        "minutes": seen["minutes"],
        "share": round(seen["share"] * 100),
    }
    return said + came_back(seen)


def puts_fail(seen: Evidence) -> str:
    return _("%(count)s messages could not be stored within %(minutes)d min.") % {
        "count": number(seen["count"]),
        "minutes": seen["minutes"],
    }


def disk_fills(seen: Evidence) -> str:
    if not seen["days"]:
        return _("The disk is %(used)d %% full: old messages are deleted before their time.") % {
            "used": math.floor(seen["used"] * 100)
        }
    return _("The disk is %(used)d %% full and takes %(pace)s a day more: 85 %% in %(left)s.") % {
        "used": round(seen["used"] * 100),
        "pace": bytes_text(seen["a_day"]),
        "left": duration(seen["days"] * 86_400),
    }


def slow_flush(seen: Evidence) -> str:
    return _("One flush of a hundred takes %(p99)d ms and more, half of them %(p50)d ms.") % {
        "p99": round(seen["p99_ms"]),
        "p50": round(seen["p50_ms"]),
    }


def half_messages(seen: Evidence) -> str:
    return _("%(count)s transactions are undecided, the oldest for %(age)s.") % {
        "count": number(seen["count"]),
        "age": span(seen["age_ms"]),
    }


def few_replicas(seen: Evidence) -> str:
    return _("%(now)d of %(least)d replicas are in sync, this broker included.") % {
        "now": seen["now"],
        "least": seen["least"],
    }


def slave_gone(seen: Evidence) -> str:
    return _("Slaves %(before)d → %(now)d, for %(minutes)d min.") % {
        "before": seen["before"],
        "now": seen["now"],
        "minutes": seen["minutes"],
    }


def slave_behind(seen: Evidence) -> str:
    return _("%(lag)s of the log are lacking, the oldest for %(age)s.") % {
        "lag": bytes_text(seen["lag"]),
        "age": span(seen["age_ms"]),
    }


def percent(share: float) -> int:
    return round(share * 100)


def mismatch(seen: Evidence) -> str:
    count = round(seen["odd"])
    said = ngettext(
        "%(count)s of %(members)s members subscribes to something else than the others.",
        "%(count)s of %(members)s members subscribe to something else than the others.",
        count,
    ) % {"count": grouped(count), "members": number(seen["members"])}
    if seen.get("wants"):
        said += " " + _("Subscriptions: %(wants)s.") % {"wants": seen["wants"]}
    if seen.get("odd_clients"):
        said += " " + _("Clients: %(clients)s.") % {"clients": seen["odd_clients"]}
    return said


def many_versions(seen: Evidence) -> str:
    said = _("The members' clients have %(versions)d versions.") % {
        "versions": round(seen["versions"])
    }
    return f"{said} {seen['kinds']}." if seen.get("kinds") else said


def hot_queue(seen: Evidence) -> str:
    said = {
        "queue": seen["queue"],
        "share": percent(seen["share"]),
        "rate": rate(seen["rate"]),
        "queues": seen.get("queues", ""),
    }
    if seen.get("queues"):
        return (
            _(
                "Queue %(queue)d gets %(share)d %% of the topic's %(rate)s msg/s; there are "
                "%(queues)s queues."
            )
            % said
        )
    return _("Queue %(queue)d gets %(share)d %% of the topic's %(rate)s msg/s.") % said


def hot_key(seen: Evidence) -> str:
    return _("%(share)d %% of the messages have the same key, at %(rate)s msg/s.") % {
        "share": percent(seen["share"]),
        "rate": rate(seen["rate"]),
    }


def near_limit(seen: Evidence) -> str:
    said = _("A message of %(size)s came; the broker takes %(limit)s at most.") % {
        "size": bytes_text(seen["size"]),
        "limit": bytes_text(seen["limit"]),
    }
    if "message_offset" not in seen:
        return said
    place = {"queue": seen["message_queue"], "offset": seen["message_offset"]}
    return said + " " + _("It is in queue %(queue)s at offset %(offset)s.") % place


def clock_off(seen: Evidence) -> str:
    if not seen.get("host"):
        return _("The clock of a client is off by %(off)s.") % {"off": span(seen["off_ms"])}
    said = {"host": seen["host"], "off": span(seen["off_ms"]), "topic": seen.get("topic", "")}
    text = (
        _("The clock of %(host)s is %(off)s ahead of the broker's; it sends to %(topic)s.")
        if seen.get("way") == "ahead"
        else _("The clock of %(host)s is %(off)s behind the broker's; it sends to %(topic)s.")
    )
    more = int(seen.get("hosts", "1")) - 1
    if more > 0:
        text += " " + ngettext(
            "%(more)d other client, too.", "%(more)d other clients, too.", more
        ) % {"more": more}
    return text % said


def cold_reads(seen: Evidence) -> str:
    return _(
        "%(count)s messages came from the disk within %(minutes)d min: %(share)d %% of those "
        "consumed."
    ) % {
        "count": number(seen["count"]),
        "minutes": seen["minutes"],
        "share": percent(seen["share"]),
    }


WORDS: dict[str, Words] = {
    "mismatch": Words(
        gettext_lazy("Members subscribe to different things"),
        mismatch,
        gettext_lazy(
            "Programs of one group that are not the same, or an old version that still runs. The "
            "broker keeps the last heartbeat's subscription for all of them, so messages are "
            "skipped or stay unread."
        ),
        gettext_lazy("Let all members subscribe to the same, or give each kind its own group."),
    ),
    "many-versions": Words(
        gettext_lazy("Clients of many versions"),
        many_versions,
        gettext_lazy(
            "A deployment that did not reach every member. Versions may share out the queues in "
            "different ways."
        ),
        gettext_lazy("Bring all members to one version."),
    ),
    "hot-queue": Words(
        gettext_lazy("A hot queue"),
        hot_queue,
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
        hot_key,
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
        near_limit,
        gettext_lazy("Bodies that grow, such as lists or documents without a bound."),
        gettext_lazy(
            "Send a reference to what is large, or raise maxMessageSize here and in producers "
            "and consumers."
        ),
    ),
    "clock-off": Words(
        gettext_lazy("A client's clock is wrong"),
        clock_off,
        gettext_lazy(
            "Its machine does not keep time (NTP); when all clients are off, it is the broker's."
        ),
        gettext_lazy("Set the clock right: latencies and searches by time are wrong until then."),
    ),
    "cold-reads": Words(
        gettext_lazy("Reads from the disk"),
        cold_reads,
        gettext_lazy(
            "The group is further behind than memory reaches (accessMessageInMemoryMaxRatio), "
            "after a reset or a long stop."
        ),
        gettext_lazy(
            "Wait if the lag shrinks. Otherwise add members, or let slaves serve such reads "
            "(slaveReadEnable)."
        ),
    ),
    "few-replicas": Words(
        gettext_lazy("Not enough replicas in sync"),
        few_replicas,
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
        slave_gone,
        gettext_lazy("It has ended, its disk is full, or the network between the two is cut."),
        gettext_lazy("Look at the slave's log. Until it is back, messages are on fewer disks."),
    ),
    "slave-behind": Words(
        gettext_lazy("A slave is behind"),
        slave_behind,
        gettext_lazy("Its disk or the network is slower than what the master takes."),
        gettext_lazy(
            "Compare the disks and the network of both. After a promotion, what it lacks would "
            "be missing."
        ),
    ),
    "queue-stuck": Words(
        gettext_lazy("One queue is stuck"),
        queue_stuck,
        gettext_lazy("Most often one message that its consumer cannot finish (a poison message)."),
        gettext_lazy(
            "Look at the message at the group's offset of this queue, and at the log of "
            "the member that has the queue."
        ),
    ),
    "stopped": Words(
        gettext_lazy("Consuming has stopped"),
        stopped,
        gettext_lazy(
            "The members are connected and take nothing: blocked threads, a full pool, a "
            "database that they wait for."
        ),
        gettext_lazy("Take a thread dump of a member, or start it anew."),
    ),
    "stalled": Words(
        gettext_lazy("Connected and not consuming"),
        stalled,
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
        falling_behind,
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
        retention,
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
        rewound,
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
        no_consumer,
        gettext_lazy("All members have ended or lost their connection."),
        gettext_lazy(
            "Start a member. If the group is not needed any more, delete it with its offsets."
        ),
    ),
    "dead-letters": Words(
        gettext_lazy("Dead letters grow"),
        dead_letters,
        gettext_lazy(
            "The consumer failed on these messages each time, up to the retries that the "
            "group allows."
        ),
        gettext_lazy("Look at the group's dead letter topic: what do these messages share?"),
    ),
    "many-retries": Words(
        gettext_lazy("Many retries"),
        many_retries,
        gettext_lazy(
            "The consumer fails on them: something that it calls is down, or answers slowly."
        ),
        gettext_lazy(
            "Look at the consumer's log. What is retried too often becomes a dead letter."
        ),
    ),
    "puts-fail": Words(
        gettext_lazy("Messages are not stored"),
        puts_fail,
        gettext_lazy("The disk is full or fails, or the broker is being stopped."),
        gettext_lazy("Look at the broker's log and at its disk at once."),
    ),
    "disk-fills": Words(
        gettext_lazy("The disk fills"),
        disk_fills,
        gettext_lazy("More is stored than is deleted after fileReservedTime."),
        gettext_lazy(
            "Keep messages for a shorter time, or add space: from 85 % on the broker deletes early."
        ),
    ),
    "slow-flush": Words(
        gettext_lazy("The disk is slow"),
        slow_flush,
        gettext_lazy("Another program writes to the same disk, or the disk itself slows down."),
        gettext_lazy("See who writes (iotop), and the disk's own health."),
    ),
    "half-messages": Words(
        gettext_lazy("Transactions pile up"),
        half_messages,
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
    subject, url = place_of(verdict)
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
            name = DLQ_PREFIX + verdict.name
            dead = Link(_("Dead letter topic"), reverse("topics:detail", args=[name]))
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


def place_of(verdict: Verdict) -> tuple[str, str]:
    """Return what a verdict is about, and the page of it."""
    match verdict.kind:
        case metrics.TOPIC:
            return verdict.name, reverse("topics:detail", args=[verdict.name])
        case metrics.PROGRESS:
            group, _at, topic = verdict.name.partition("@")
            return f"{group} · {topic}", reverse("groups:detail", args=[group])
        case metrics.GROUP:
            return verdict.name, reverse("groups:detail", args=[verdict.name])
        case _other:
            arguments = [verdict.broker, int(verdict.name)]
            return verdict.broker, reverse("brokers:detail", args=arguments)
