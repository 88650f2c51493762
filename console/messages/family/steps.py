"""The steps of a message's history, with their time and evidence."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from django.utils.translation import gettext as _, gettext_lazy

from broker_core.message import names
from console.messages.browse.columns import OUTCOMES, message_url
from console.messages.browse.readers import State
from console.messages.family.relatives import PROPERTY_REPLAYED, Relation

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from console.gateway.answers import Replication
    from console.lib.stored import StoredMessage
    from console.messages.browse.readers import Reading
    from console.messages.family.relatives import Relatives

US_A_MS = 1_000


class Certainty(StrEnum):
    """How certain a step is."""

    EXACT = "exact"
    INFERRED = "inferred"
    UNKNOWN = "unknown"


CERTAINTIES = {
    Certainty.EXACT: gettext_lazy("recorded"),
    Certainty.INFERRED: gettext_lazy("inferred"),
    Certainty.UNKNOWN: gettext_lazy("unknown"),
}


class Source(StrEnum):
    """The source of a step."""

    LOG = "log"
    QUEUE = "queue"
    OFFSET = "offset"
    REPLICATION = "replication"
    RECORDER = "recorder"
    CLIENT = "client"
    NOTHING = "nothing"


SOURCES = {
    Source.LOG: gettext_lazy("CommitLog"),
    Source.QUEUE: gettext_lazy("ConsumeQueue"),
    Source.OFFSET: gettext_lazy("group offset"),
    Source.REPLICATION: gettext_lazy("slaves"),
    Source.RECORDER: gettext_lazy("recorder"),
    Source.CLIENT: gettext_lazy("client trace"),
    Source.NOTHING: gettext_lazy("not recorded"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """A step of the history. Times are microseconds since 1970, None if unknown.

    `after_us` places a step without a time after the step it followed. `record` identifies the
    record in the CommitLog; steps from two sources with the same stage and record are merged.
    """

    stage: str
    label: str
    actor: str = ""
    begin_us: int | None = None
    end_us: int | None = None
    after_us: int = 0
    certainty: Certainty = Certainty.EXACT
    source: Source = Source.LOG
    evidence: str = ""
    state: str = ""
    url: str = ""
    record: str = ""
    facts: tuple[tuple[str, str], ...] = ()

    @property
    def certainty_label(self) -> str:
        return str(CERTAINTIES[self.certainty])

    @property
    def source_label(self) -> str:
        return str(SOURCES[self.source])

    @property
    def lasts_us(self) -> int | None:
        if self.begin_us is None or self.end_us is None:
            return None
        return self.end_us - self.begin_us

    @property
    def sort_key(self) -> int:
        return self.after_us if self.begin_us is None else self.begin_us


def steps_from_log(
    relatives: Relatives,
    readings: Sequence[Reading],
    replication: Replication | None,
) -> list[Step]:
    """Return the steps that follow from stored records, queues and offsets."""
    steps = list(_of_root(relatives, replication))
    for group in relatives.groups:
        steps += _of_copies(relatives, group)
    steps += _again(relatives)
    # Dead letters have a step of their own.
    steps += (_of_reading(relatives, each) for each in readings if each.state is not State.DEAD)
    return steps


def in_order(steps: Sequence[Step]) -> list[Step]:
    """Return steps sorted by time, keeping the given order within the same time."""
    return sorted(steps, key=lambda step: step.sort_key)


def us(at_ms: int) -> int:
    return at_ms * US_A_MS


def record_at(broker_name: str, commit_log_offset: object) -> str:
    """Return a record's identifier in steps."""
    return f"{broker_name} {commit_log_offset}"


def _record_of(message: StoredMessage) -> str:
    return record_at(message.broker_name, message.commit_log_offset)


def _of_root(relatives: Relatives, replication: Replication | None) -> Iterator[Step]:
    root = relatives.root
    first = _first_stored(relatives)
    stored_us = us(root.store_ms)
    yield _sent(root, first)
    yield from _waited(relatives, root)
    if not root.is_half:
        yield from _reached(root, stored_us)
    yield Step(
        stage="flushed",
        label=_("flushed"),
        after_us=stored_us,
        certainty=Certainty.UNKNOWN,
        source=Source.NOTHING,
        evidence=_("The log doesn't record when a message was written to disk."),
    )
    yield _replicated(root, replication, stored_us)
    if root.is_half:
        yield _outcome_step([root, *relatives.of(Relation.HALF)][-1])


def _reached(root: StoredMessage, stored_us: int) -> Iterator[Step]:
    """Yield the step in which the message reached its topic."""
    yield Step(
        stage="stored",
        label=_("stored"),
        actor=f"{root.broker_name} {root.queue_id} · {root.queue_offset}",
        begin_us=stored_us,
        evidence=_("From the CommitLog record, to the millisecond."),
        state="accent",
        url=message_url(root),
        record=_record_of(root),
        facts=_facts_of(root),
    )
    yield Step(
        stage="dispatched",
        label=_("dispatched"),
        actor=f"{root.topic} {root.queue_id}",
        after_us=stored_us,
        source=Source.QUEUE,
        evidence=_("The message is in its ConsumeQueue. The time isn't recorded."),
        certainty=Certainty.INFERRED,
    )


def _sent(root: StoredMessage, first_ms: int) -> Step:
    born_us, stored_us = us(root.born_ms), us(first_ms)
    group = root.properties.get(names.PROPERTY_PRODUCER_GROUP, "")
    if born_us > stored_us:
        evidence = _(
            "The client's clock is ahead of the broker's: its send time is later than the "
            "broker's receive time."
        )
    else:
        evidence = _("From the client's clock to the broker's. The clocks may differ.")
    return Step(
        stage="sent",
        label=_("sent"),
        actor=" ".join(each for each in (group, root.born_host) if each),
        begin_us=min(born_us, stored_us),
        end_us=stored_us,
        certainty=Certainty.INFERRED,
        evidence=evidence,
        state="info",
    )


def _first_stored(relatives: Relatives) -> int:
    """Return when the first record of the message itself was stored."""
    waiting = [*relatives.of(Relation.HALF), *relatives.of(Relation.DEFERRED, "")]
    return min(each.store_ms for each in (*waiting, relatives.root))


def _waited(relatives: Relatives, root: StoredMessage) -> Iterator[Step]:
    """Yield steps between sending and the topic: a transaction, a delay."""
    halves = [*([root] if root.is_half else []), *relatives.of(Relation.HALF)]
    halves.sort(key=lambda half: (half.store_ms, half.place))  # a later copy can be the root
    yield from _withheld(halves, root)
    if not halves and root.prepared_offset > 0:
        yield Step(
            stage="withheld",
            label=_("withheld"),
            actor=root.properties.get(names.PROPERTY_PRODUCER_GROUP, ""),
            after_us=us(root.born_ms),
            certainty=Certainty.INFERRED,
            evidence=_(
                "First stored as a half message at CommitLog offset %(offset)d, not visible to "
                "consumers."
            )
            % {"offset": root.prepared_offset},
            state="warn",
        )
    for deferred in relatives.of(Relation.DEFERRED, ""):
        yield _deferred(deferred, root, _("deferred"))


def _withheld(halves: Sequence[StoredMessage], root: StoredMessage) -> Iterator[Step]:
    """Yield the steps of a transaction: half message, copies for checks, and outcome."""
    for half in halves[:1]:
        yield Step(
            stage="withheld",
            label=_("withheld"),
            actor=half.properties.get(names.PROPERTY_PRODUCER_GROUP, ""),
            begin_us=us(half.store_ms),
            end_us=None if root.is_half else us(root.store_ms),
            evidence=_("A half message until the producer committed the transaction.")
            if not root.is_half
            else _("A half message. It won't be delivered unless the producer commits it."),
            state="warn",
            record=_record_of(half),
            facts=_facts_of(half),
        )
    for copy in halves[1:]:
        times = copy.properties.get(names.PROPERTY_TRANSACTION_CHECK_TIMES, "")
        yield Step(
            stage="checked",
            label=_("checked"),
            actor=copy.properties.get(names.PROPERTY_PRODUCER_GROUP, ""),
            begin_us=us(copy.store_ms),
            evidence=_("Checks that the broker sent to the producer: %(times)s.")
            % {"times": times or "0"},
            facts=_facts_of(copy),
        )


FATE_STATES = {"rolled_back": "bad", "given_up": "bad", "undecided": "warn", "committed": "ok"}


def _outcome_step(half: StoredMessage) -> Step:
    """Return the outcome of a transaction that isn't committed."""
    evidence = {
        "rolled_back": _("Rolled back, so it won't be delivered. The time isn't recorded."),
        "undecided": _("The transaction is still pending."),
        "given_up": _(
            "The producer didn't report an outcome, so the message was moved to %(topic)s."
        )
        % {"topic": names.RMQ_SYS_TRANS_CHECK_MAX_TIME_TOPIC},
        "committed": _("Committed, but the resulting message doesn't exist or has expired."),
    }.get(half.outcome, _("The broker doesn't report how the transaction ended."))
    is_known = half.outcome in OUTCOMES
    return Step(
        stage=half.outcome or "unknown",
        label=str(OUTCOMES.get(half.outcome, _("outcome"))),
        actor=half.properties.get(names.PROPERTY_PRODUCER_GROUP, ""),
        after_us=us(half.store_ms),
        certainty=Certainty.EXACT if is_known else Certainty.UNKNOWN,
        source=Source.LOG if is_known else Source.NOTHING,
        evidence=evidence,
        state=FATE_STATES.get(half.outcome, ""),
    )


def _deferred(waiting: StoredMessage, arrived: StoredMessage | None, label: str) -> Step:
    level = waiting.properties.get(names.PROPERTY_DELAY_TIME_LEVEL, "")
    if arrived is None or arrived.place == waiting.place:
        evidence = _("Waiting for delay level %(level)s.") % {"level": level}
    else:
        evidence = _("Delayed by level %(level)s, then stored in its topic.") % {"level": level}
    return Step(
        stage="deferred",
        label=label,
        actor=_("level %(level)s") % {"level": level},
        begin_us=us(waiting.store_ms),
        end_us=us(arrived.store_ms) if arrived is not None else None,
        evidence=evidence,
        state="warn",
        url=message_url(waiting),
        record=_record_of(waiting),
        facts=_facts_of(waiting),
    )


def _of_copies(relatives: Relatives, group: str) -> Iterator[Step]:
    """Yield the steps of a group's retries and dead letter, with their delays and arrivals."""
    retries = {each.reconsume_times: each for each in relatives.of(Relation.RETRY, group)}
    for waiting in relatives.of(Relation.DEFERRED, group):
        yield Step(
            stage="given_back",
            label=_("returned for retry"),
            actor=group,
            begin_us=us(waiting.store_ms),
            evidence=_("The broker stored it again to wait for its retry."),
            state="warn",
        )
        arrived = retries.get(waiting.reconsume_times)
        number = {"number": waiting.reconsume_times}
        yield _deferred(waiting, arrived, _("wait for retry %(number)d") % number)
    for each in relatives.of(Relation.RETRY, group):
        yield Step(
            stage="retry",
            label=_retry_label(each.reconsume_times, relatives.retries_max.get(group)),
            actor=group,
            begin_us=us(each.store_ms),
            evidence=_("Stored in the group's retry topic, to be consumed again."),
            state="warn",
            url=message_url(each),
            record=_record_of(each),
            facts=_facts_of(each),
        )
    for each in relatives.of(Relation.DEAD, group):
        yield Step(
            stage="dead",
            label=_("dead letter"),
            actor=group,
            begin_us=us(each.store_ms),
            evidence=_("Moved to the group's dead-letter topic after %(count)d retries.")
            % {"count": max(0, each.reconsume_times - 1)},
            state="bad",
            url=message_url(each),
            record=_record_of(each),
            facts=_facts_of(each),
        )


def _retry_label(number: int, most: int | None) -> str:
    if most is None:
        return _("retry %(number)d") % {"number": number}
    return _("retry %(number)d of %(max)d") % {"number": number, "max": most}


def _again(relatives: Relatives) -> Iterator[Step]:
    for each in relatives.of(Relation.AGAIN):
        is_replay = PROPERTY_REPLAYED in each.properties
        yield Step(
            stage="replayed" if is_replay else "stored_again",
            label=_("replayed") if is_replay else _("stored again"),
            actor=f"{each.broker_name} {each.queue_id} · {each.queue_offset}",
            begin_us=us(each.store_ms),
            evidence=_("The dead letter was replayed.")
            if is_replay
            else _("A record with the same unique key: the producer sent the message again."),
            state="info",
            url=message_url(each),
            record=_record_of(each),
            facts=_facts_of(each),
        )


READING_CERTAINTIES = {
    State.WAITING: Certainty.EXACT,
    State.RETRIED: Certainty.EXACT,
    State.UNKNOWN: Certainty.UNKNOWN,
}


def _of_reading(relatives: Relatives, reading: Reading) -> Step:
    """Return the step for a group's offset beyond the message, whose time is unknown."""
    copies = [
        *relatives.of(Relation.RETRY, reading.group),
        *relatives.of(Relation.DEAD, reading.group),
    ]
    last_ms = max((each.store_ms for each in copies), default=relatives.root.store_ms)
    return Step(
        stage=str(reading.state),
        label=reading.label,
        actor=reading.group,
        after_us=us(last_ms),
        certainty=READING_CERTAINTIES.get(reading.state, Certainty.INFERRED),
        source=Source.OFFSET,
        evidence=reading.evidence,
        state=reading.colour,
    )


def _replicated(root: StoredMessage, replication: Replication | None, stored_us: int) -> Step:
    end = root.commit_log_offset + root.store_size
    if replication is None:
        certainty, source = Certainty.UNKNOWN, Source.NOTHING
        actor, evidence = (
            "",
            _("The log doesn't record which slaves have a message, or since when."),
        )
    elif not replication.links:
        certainty, source = Certainty.UNKNOWN, Source.REPLICATION
        actor, evidence = "", _("No slave is following this broker.")
    else:
        least = replication.max_offset - end
        having = [link for link in replication.links if link.behind_bytes <= least]
        certainty = Certainty.INFERRED if having else Certainty.EXACT
        source = Source.REPLICATION
        actor = " ".join(link.address for link in having)
        evidence = (
            _("These slaves have confirmed this part of the log. The time isn't recorded.")
            if having
            else _("No slave has confirmed this part of the log yet.")
        )
    return Step(
        stage="replicated",
        label=_("replicated"),
        actor=actor,
        after_us=stored_us,
        certainty=certainty,
        source=source,
        evidence=evidence,
    )


def _facts_of(message: StoredMessage) -> tuple[tuple[str, str], ...]:
    facts = [
        (_("Topic"), message.topic),
        (_("Queue"), f"{message.queue} · {message.queue_offset}"),
        (_("CommitLog location"), str(message.commit_log_offset)),
        (_("Offset message ID"), message.offset_msg_id),
    ]
    if message.reconsume_times:
        facts.append((_("Redeliveries"), str(message.reconsume_times)))
    return tuple(facts)
