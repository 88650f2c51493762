"""Client traces as steps of a message's history, and clock differences to the broker."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from django.utils.translation import gettext as _, pgettext

from console.messages.family.client_traces import (
    END_TRANSACTION,
    PUB,
    RECALL,
    ClientRecord,
    consumptions,
)
from console.messages.family.relatives import Relation
from console.messages.family.steps import Certainty, Source, Step, us

if TYPE_CHECKING:
    from collections.abc import Iterator

    from console.messages.family.relatives import Relatives


class Comparison(NamedTuple):
    """The same event by the client's and the broker's clock.

    The broker's time should be between `low_ms` and `high_ms` of the client's clock, or before
    `low_ms` if `high_ms` is None. `apart_ms` is the minimum difference of the clocks: positive if
    the client's is ahead, zero if the times are consistent.
    """

    what: str
    who: str
    low_ms: int
    high_ms: int | None
    ours_ms: int

    @property
    def apart_ms(self) -> int:
        if self.high_ms is None:
            return min(0, self.low_ms - self.ours_ms)
        return max(0, self.low_ms - self.ours_ms) + min(0, self.high_ms - self.ours_ms)

    @property
    def lasts_ms(self) -> int | None:
        return None if self.high_ms is None else self.high_ms - self.low_ms

    @property
    def low_millis(self) -> str:
        return f"{self.low_ms % 1000:03d}"

    @property
    def ours_millis(self) -> str:
        return f"{self.ours_ms % 1000:03d}"

    @property
    def sentence(self) -> str:
        if self.apart_ms > 0:
            return _("The client's clock is at least %(ms)d ms ahead.") % {"ms": self.apart_ms}
        if self.apart_ms < 0:
            return _("The client's clock is at least %(ms)d ms behind.") % {"ms": -self.apart_ms}
        if self.high_ms is None:
            return _("The order is consistent. Nothing suggests that the clocks differ.")
        return _("The clocks agree: the broker's time is within the client's %(ms)d ms.") % {
            "ms": self.lasts_ms
        }


def steps_of_clients(relatives: Relatives) -> list[Step]:
    """Return the steps that clients recorded, which enclose the broker's steps."""
    records = relatives.client_records
    steps = [step for record in records for step in _of_record(record)]
    steps += (step for pair in consumptions(records) for step in _of_consumption(*pair))
    return steps


def comparisons(relatives: Relatives) -> list[Comparison]:
    """Return the events that both a client and the broker recorded."""
    waiting = [*relatives.of(Relation.HALF), *relatives.of(Relation.DEFERRED, "")]
    first_ms = min(each.store_ms for each in (*waiting, relatives.root))
    rows = [
        Comparison(
            _("Stored while the client sent"),
            record.group,
            record.at_ms,
            record.at_ms + (record.cost_ms or 0),
            first_ms,
        )
        for record in relatives.client_records
        if record.kind == PUB and record.at_ms is not None
    ]
    for before, _after in consumptions(relatives.client_records):
        if before is None or before.at_ms is None:
            continue
        came = [
            each.store_ms
            for each in relatives.of(Relation.RETRY, before.group)
            if each.reconsume_times == before.retry_times
        ]
        ours_ms = came[0] if came else relatives.root.store_ms
        what = _("Consumed after it was stored")
        rows.append(Comparison(what, before.group, before.at_ms, None, ours_ms))
    return rows


def _of_record(record: ClientRecord) -> Iterator[Step]:
    if record.kind == PUB and record.at_ms is not None:
        yield _step(
            record,
            "client_send",
            _("client sends"),
            lasts_ms=record.cost_ms,
            evidence=_("Producer's own trace, by its clock, until it received the response."),
        )
    elif record.kind == END_TRANSACTION:
        yield _step(
            record,
            "client_end_transaction",
            _("client ends the transaction"),
            evidence=_("Producer's own trace: %(state)s%(check)s.")
            % {
                "state": record.transaction_state,
                "check": _(", after a check by the broker") if record.is_from_check else "",
            },
        )
    elif record.kind == RECALL:
        yield _step(
            record,
            "client_recall",
            _("client recalls the message"),
            evidence=_("Producer's own trace: it recalled the delayed message."),
        )
    elif not record.kind:
        yield Step(
            stage="client_unknown",
            label=_("client trace"),
            certainty=Certainty.UNKNOWN,
            source=Source.CLIENT,
            evidence=_("A trace record of unknown type or length."),
            facts=((_("Raw"), record.raw.replace("\x01", " | ")),),
        )


def _of_consumption(before: ClientRecord | None, after: ClientRecord | None) -> Iterator[Step]:
    if before is None:
        assert after is not None
        yield _step(
            after,
            "client_consume",
            _("client consumed"),
            evidence=_("Only the end of the consumption was traced."),
        )
        return
    lasts_ms = None
    if after is not None and after.cost_ms is not None:
        # The recorded cost is a batch's, divided by its messages, so the end time is more accurate.
        took = (after.at_ms or 0) - (before.at_ms or 0)
        lasts_ms = took if after.at_ms is not None and took >= 0 else after.cost_ms
    if after is None:
        state, evidence = "", _("Consumer's own trace, without the end of the consumption.")
    elif after.is_success:
        state, evidence = "ok", _("Consumer's own trace, by its clock: it succeeded.")
    else:
        state = "warn"
        evidence = _("Consumer's own trace, by its clock: it failed (%(type)s).") % {
            "type": after.return_type or "?"
        }
    yield _step(
        before,
        "client_consume",
        _("client consumes"),
        lasts_ms=lasts_ms,
        evidence=evidence,
        state=state,
    )


def _step(
    record: ClientRecord,
    stage: str,
    label: str,
    *,
    evidence: str,
    lasts_ms: int | None = None,
    state: str = "",
) -> Step:
    begin_us = None if record.at_ms is None else us(record.at_ms)
    if record.is_success is False and not state:
        state = "bad"
    facts = [
        (pgettext("client", "Group"), record.group),
        (_("Client"), record.client_host),
        (_("Broker"), record.store_host),
        (_("Request"), record.request_id),
        (_("Message type"), record.message_type),
        (_("Transaction"), record.transaction_id),
    ]
    return Step(
        stage=stage,
        label=label,
        actor=" ".join(each for each in (record.group, record.client_host) if each),
        begin_us=begin_us,
        end_us=None if begin_us is None or lasts_ms is None else begin_us + us(lasts_ms),
        source=Source.CLIENT,
        evidence=evidence,
        state=state,
        facts=tuple((name, value) for name, value in facts if value),
    )
