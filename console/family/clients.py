"""Clients beside us: their own traces as steps, and how far their clocks agree with ours."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from django.utils.translation import gettext as _

from console.family.client_traces import (
    END_TRANSACTION,
    PUB,
    RECALL,
    ClientRecord,
    consumptions,
)
from console.family.relatives import Kin
from console.family.steps import Certainty, Source, Step, us

if TYPE_CHECKING:
    from collections.abc import Iterator

    from console.family.relatives import Relatives


class Comparison(NamedTuple):
    """One moment by two clocks.

    Ours lies between `low_ms` and `high_ms` of the client's, or, where that is None, before it.
    `apart_ms` is how far the clocks are apart at least: above zero the client's is ahead, zero is
    no contradiction.
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
            return _("The client's clock is ahead by %(ms)d ms or more.") % {"ms": self.apart_ms}
        if self.apart_ms < 0:
            return _("The client's clock is behind by %(ms)d ms or more.") % {"ms": -self.apart_ms}
        if self.high_ms is None:
            return _("In order: nothing says that the clocks differ.")
        return _("They agree: ours lies within the client's %(ms)d ms.") % {"ms": self.lasts_ms}


def steps_of_clients(relatives: Relatives) -> list[Step]:
    """Return what clients say they did, as the outer spans around the broker's steps."""
    records = relatives.client_records
    steps = [step for record in records for step in _of_record(record)]
    steps += (step for pair in consumptions(records) for step in _of_consumption(*pair))
    return steps


def comparisons(relatives: Relatives) -> list[Comparison]:
    """Return the moments that a client and the broker both wrote down."""
    waiting = [*relatives.of(Kin.HALF), *relatives.of(Kin.DEFERRED, "")]
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
            for each in relatives.of(Kin.RETRY, before.group)
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
            how=_("The producer's own trace, by its clock: until it had the answer."),
        )
    elif record.kind == END_TRANSACTION:
        yield _step(
            record,
            "client_end_transaction",
            _("client ends the transaction"),
            how=_("The producer's own trace: %(state)s%(check)s.")
            % {
                "state": record.transaction_state,
                "check": _(", after the broker asked") if record.is_from_check else "",
            },
        )
    elif record.kind == RECALL:
        yield _step(
            record,
            "client_recall",
            _("client recalls it"),
            how=_("The producer's own trace: it took the delayed message back."),
        )
    elif not record.kind:
        yield Step(
            stage="client_unknown",
            label=_("a trace of a client"),
            certainty=Certainty.UNKNOWN,
            source=Source.CLIENT,
            how=_("A record of a kind or length that is not known here."),
            facts=((_("As it came"), record.raw.replace("\x01", " | ")),),
        )


def _of_consumption(before: ClientRecord | None, after: ClientRecord | None) -> Iterator[Step]:
    if before is None:
        assert after is not None
        yield _step(
            after,
            "client_consume",
            _("client consumed"),
            how=_("Only the end of the consumption was traced."),
        )
        return
    lasts_ms = None
    if after is not None and after.cost_ms is not None:
        # The cost is that of a batch, divided by its messages: the time of the end is better.
        took = (after.at_ms or 0) - (before.at_ms or 0)
        lasts_ms = took if after.at_ms is not None and took >= 0 else after.cost_ms
    if after is None:
        state, how = "", _("The consumer's own trace; the end of the consumption is not in it.")
    elif after.is_success:
        state, how = "ok", _("The consumer's own trace, by its clock: it succeeded.")
    else:
        state = "warn"
        how = _("The consumer's own trace, by its clock: it failed (%(type)s).") % {
            "type": after.return_type or "?"
        }
    yield _step(
        before, "client_consume", _("client consumes"), lasts_ms=lasts_ms, how=how, state=state
    )


def _step(
    record: ClientRecord,
    stage: str,
    label: str,
    *,
    how: str,
    lasts_ms: int | None = None,
    state: str = "",
) -> Step:
    begin_us = None if record.at_ms is None else us(record.at_ms)
    if record.is_success is False and not state:
        state = "bad"
    facts = [
        (_("Group"), record.group),
        (_("Client"), record.client_host),
        (_("Broker"), record.store_host),
        (_("Request"), record.request_id),
        (_("Kind of message"), record.message_type),
        (_("Transaction"), record.transaction_id),
    ]
    return Step(
        stage=stage,
        label=label,
        who=" ".join(each for each in (record.group, record.client_host) if each),
        begin_us=begin_us,
        end_us=None if begin_us is None or lasts_ms is None else begin_us + us(lasts_ms),
        source=Source.CLIENT,
        how=how,
        state=state,
        facts=tuple((name, value) for name, value in facts if value),
    )
