"""Flight recorder events of one message as steps, in microseconds."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from django.utils.translation import gettext as _, gettext_lazy, ngettext

from broker_core.message.names import TOOLS_CONSUMER_GROUP
from console.gateway.access import gateway
from console.gateway.answers import TracedMessage, WatchFilter
from console.gateway.errors import GatewayError
from console.gateway.flight_recorder import Question, RecordedEvents
from console.messages.browse.readers import State
from console.messages.family.relatives import first_topic
from console.messages.family.steps import Certainty, Source, Step, record_at, us

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from console.gateway.answers import TraceEvent
    from console.messages.family.relatives import Relatives

MINUTES = 60
EVENTS_MAX = 500
SAME_RUN_MS = 10_000
"""The maximum difference of two clocks within one run of a broker."""
LABELS = {
    "received": gettext_lazy("received"),
    "validated": gettext_lazy("validated"),
    "appended": gettext_lazy("appended"),
    "dispatched": gettext_lazy("dispatched"),
    "stored": gettext_lazy("stored"),
    "retried": gettext_lazy("retry"),
    "replayed": gettext_lazy("replayed"),
    "refused": gettext_lazy("rejected"),
    "withheld": gettext_lazy("withheld"),
    "checked": gettext_lazy("checked"),
    "committed": gettext_lazy("committed"),
    "rolled_back": gettext_lazy("rolled back"),
    "deferred": gettext_lazy("deferred"),
    "flushed": gettext_lazy("flushed"),
    "replicated": gettext_lazy("replicated"),
    "woken": gettext_lazy("long poll answered"),
    "filtered": gettext_lazy("filtered out"),
    "delivered": gettext_lazy("delivered"),
    "acknowledged": gettext_lazy("acknowledged"),
    "given_back": gettext_lazy("returned for retry"),
    "dead": gettext_lazy("dead letter"),
    "expired": gettext_lazy("expired unread"),
}
STATES = {
    "stored": "accent",
    "delivered": "info",
    "acknowledged": "ok",
    "committed": "ok",
    "given_back": "warn",
    "retried": "warn",
    "deferred": "warn",
    "withheld": "warn",
    "dead": "bad",
    "refused": "bad",
    "rolled_back": "bad",
    "expired": "bad",
}
LOGGED_AS = {"retried": "retry"}
"""The names of stages in steps from the log, if they differ."""
GIVEN_BACK = "given_back"
FIRST = "fromOffset"
"""The key for the queue offset of the first message, in an event that covers several."""
MAKING = frozenset({"stored", "retried", "replayed", "dead", "deferred", "withheld"})
OF_RECORDS = MAKING | {"flushed", "replicated"}
"""Events of these stages refer to the record that they created, flushed or replicated. Others refer
to the message.
"""
SAME_STAGE_MS = 1_000
"""The maximum time difference for matching a stage without its record."""
LASTING = frozenset({"flushed", "replicated", "delivered", "acknowledged", "committed", "woken"})
"""Stages whose latency is the time until them, which a bar shows."""
FACTS = (
    *("client", "clientId", "source", "filteredBy", "together", "checkTimes", "delayLevel"),
    *("commitLogOffset", "storeSize"),
    *("reconsumeTimes", "reconsumeMax", "codeName", "remark", "replay", FIRST),
)


def recorded_events(relatives: Relatives) -> list[TraceEvent]:
    """Return a message's events from all recorders, by time.

    RocketMQ brokers have no recorder, which isn't reported as a problem.
    """
    message = relatives.root
    place = TracedMessage(
        message.topic, message.queue_id, message.queue_offset, message.uniq_key or None
    )
    try:
        answers = gateway().recorder.recorded(
            Question.MESSAGE, MINUTES, EVENTS_MAX, WatchFilter(message=place)
        )
    except GatewayError as error:
        relatives.problems.append(error.what)
        return []
    topic = first_topic(message)
    events: list[TraceEvent] = []
    for broker_name, answer in answers.items():
        if isinstance(answer, RecordedEvents):
            events += [
                event | {"brokerName": broker_name}
                for event in answer.events
                # Reads by tools, such as this page, aren't consumption. A slow put of a copy has a
                # step of its own.
                if event.get("group") != TOOLS_CONSUMER_GROUP
                and (event["stage"] != "stored" or event["topic"] == topic)
            ]
    return sorted(events, key=lambda event: (int(event["timeMs"]), int(event.get("atUs") or 0)))


def with_recorded(steps: Sequence[Step], events: Sequence[TraceEvent]) -> list[Step]:
    """Return steps combined with recorder steps, which have more precise times.

    A step from both sources is merged: the time of the recorder, and other facts from the log.
    """
    added = [_not_before(each, steps) for each in steps_of(_certain(steps, events))]
    own = _own_record(steps)
    known = {_mark(step) for step in added if not own or step.record in {"", own}}
    found = []
    for step in steps:
        if step.begin_us is None:
            if _mark(step) not in known:
                found.append(step)
            continue
        same = _same_stage(step, added)
        if same is not None:
            added.remove(same)
            step = _merged(step, same)
        found.append(step)
    return [*found, *added]


def _own_record(steps: Sequence[Step]) -> str:
    """Return the record that steps of the log without a time refer to, ignoring copies."""
    reached = [each for each in steps if each.stage == "stored"]
    return next((each.record for each in reached or steps if each.record), "")


def _same_stage(step: Step, added: Sequence[Step]) -> Step | None:
    """Return the recorder's step for a step of the log: with the same record, or close in time."""
    begin_us = step.begin_us or 0
    near = [
        (abs((each.begin_us or 0) - begin_us), number)
        for number, each in enumerate(added)
        if LOGGED_AS.get(each.stage, each.stage) == step.stage
        if (
            each.record == step.record
            if each.record and step.record
            else abs((each.begin_us or 0) - begin_us) <= us(SAME_STAGE_MS)
            and (step.stage != GIVEN_BACK or _group(each) == _group(step))
        )
    ]
    return added[min(near)[1]] if near else None


def _merged(logged: Step, noted: Step) -> Step:
    begin_us = noted.begin_us
    end_us = noted.end_us if noted.end_us is not None else logged.end_us
    if begin_us is not None and end_us is not None:
        end_us = max(begin_us, end_us)
    return replace(
        logged,
        begin_us=begin_us,
        end_us=end_us,
        certainty=noted.certainty,
        source=noted.source,
        evidence=f"{logged.evidence} {noted.evidence}",
        facts=(*logged.facts, *noted.facts),
    )


def _certain(steps: Sequence[Step], events: Sequence[TraceEvent]) -> list[TraceEvent]:
    """Drop events for several messages that don't apply to this one.

    Deliveries and acknowledgements also cover messages that a group's filter skipped. If the
    message has events of its own, events that cover several messages add nothing.
    """
    passed_over = {str(each["group"]) for each in events if each["stage"] == "filtered"}
    passed_over |= {step.actor for step in steps if step.stage == State.FILTERED}
    own = {_of_group(each) for each in events if each.get(FIRST) is None}
    return [
        each
        for each in events
        if (each.get(FIRST) is None and each.get("acknowledgedFrom") is None)
        or (
            each.get("group") not in passed_over
            and (each.get(FIRST) is None or _of_group(each) not in own)
        )
    ]


def _of_group(event: TraceEvent) -> tuple[object, ...]:
    return event["stage"], event["topic"], event.get("group")


def _not_before(step: Step, logged: Sequence[Step]) -> Step:
    """Return a step that covers several messages, without a time before this one was stored.

    All deliveries within a second are one event with the time of the first. A later message in it
    was delivered, but the time is unknown.
    """
    stored_us = next((each.begin_us for each in logged if each.stage == "stored"), None)
    begin_us = step.begin_us
    if stored_us is None or begin_us is None or FIRST not in dict(step.facts):
        return step
    end_us = begin_us if step.end_us is None else step.end_us
    if begin_us >= stored_us - us(1):
        return step
    evidence = _(
        "Recorded by the broker together with earlier messages, within a second. The exact "
        "time is unknown."
    )
    step = replace(step, certainty=Certainty.INFERRED, evidence=evidence)
    if end_us < stored_us:
        return replace(step, begin_us=None, end_us=None, after_us=stored_us)
    return replace(step, begin_us=stored_us)


def _mark(step: Step) -> tuple[str, str]:
    """Return a key that identifies a stage, per group for stages of groups."""
    return step.stage, _group(step) if step.stage == "acknowledged" else ""


def _group(step: Step) -> str:
    return step.actor.partition(" ")[0]


def steps_of(events: Iterable[TraceEvent]) -> list[Step]:
    """Return a step for each event and each phase of a put, using both of the broker's clocks."""
    steps = []
    for event, end_us in _timed(list(events)):
        steps += _steps_of_put(event, end_us)
        steps.append(_step(event, end_us))
    return steps


def _timed(events: Sequence[TraceEvent]) -> Iterator[tuple[TraceEvent, int]]:
    """Yield each event with its wall-clock time in microseconds.

    Wall-clock times have a resolution of a millisecond; the latest start of one ties the broker's
    finer clock to it. A restarted broker's clock has a different origin.
    """
    ties: dict[tuple[str, int], int] = {}
    found = []
    for event in events:
        time_us, at_us = us(int(event["timeMs"])), int(event.get("atUs") or 0)
        run = str(event.get("brokerName", "")), (time_us - at_us) // us(SAME_RUN_MS)
        ties[run] = max(ties.get(run, time_us - at_us), time_us - at_us)
        found.append((event, time_us, at_us, run))
    for event, time_us, at_us, run in found:
        yield event, ties[run] + at_us if at_us else time_us


def _step(event: TraceEvent, end_us: int) -> Step:
    stage = str(event["stage"])
    latency_us = int(event.get("latencyUs") or 0)
    lasts = stage in LASTING and latency_us > 0
    return Step(
        stage=stage,
        label=str(LABELS.get(stage, stage)),
        actor=_actor(event),
        begin_us=end_us - latency_us if lasts else end_us,
        end_us=end_us if lasts else None,
        source=Source.RECORDER,
        evidence=_("Recorded by the broker in real time, to the microsecond.")
        if not event.get("sifted")
        else _(
            "Recorded by the broker together with other messages, some of which were filtered out."
        ),
        certainty=Certainty.INFERRED if event.get("sifted") else Certainty.EXACT,
        state=STATES.get(stage, ""),
        record=_record_of(event, OF_RECORDS),
        facts=tuple((name, str(event[name])) for name in FACTS if event.get(name) is not None),
    )


def _actor(event: TraceEvent) -> str:
    together = int(event.get("together") or 0)
    if event["stage"] == "flushed" and together:
        sentence = ngettext("group commit of %(count)d", "group commit of %(count)d", together)
        return sentence % {"count": together}
    actor = [event.get("group"), event.get("clientId") or event.get("client")]
    return " ".join(str(each) for each in actor if each) or (
        f"{event['topic']} {event.get('queueId', '')}"
    )


def _record_of(event: TraceEvent, stages: frozenset[str]) -> str:
    offset = event.get("commitLogOffset")
    if event["stage"] not in stages or offset is None:
        return ""
    return record_at(str(event.get("brokerName", "")), offset)


def _steps_of_put(event: TraceEvent, end_us: int) -> list[Step]:
    """Return the phases of a put, each starting when the previous one ended."""
    parts = sorted((event.get("steps") or {}).items(), key=lambda part: part[1])
    if not parts:
        return []
    begin_us = end_us - parts[-1][1]
    steps, before = [], 0
    for name, at_us in parts:
        steps.append(
            Step(
                stage=name,
                label=str(LABELS.get(name, name)),
                actor=" ".join(
                    str(event[each]) for each in ("producerGroup", "client") if event.get(each)
                ),
                begin_us=begin_us + before,
                end_us=begin_us + at_us if at_us > before else None,
                source=Source.RECORDER,
                evidence=_("A step of storing the message, by the broker's monotonic clock."),
                record=_record_of(event, MAKING),
            )
        )
        before = at_us
    return steps
