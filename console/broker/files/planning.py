"""The page of changes in files: one plan per file, applied together, undone one by one."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from django.contrib import messages
from django.core import signing
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils.translation import gettext as _

from console.accounts.rights import rights_on
from console.broker.files.changing import (
    carry_out,
    changed_of,
    costs,
    plan_of,
    read,
    subject_in,
    touched_in,
)
from console.broker.files.costing import PlanRefusedError
from console.broker.files.models import REASON_CHARACTERS_MAX, Source, keep
from console.broker.files.rights import require_entries
from console.gateway.errors import GatewayError
from console.people.audit.record import change
from console.people.audit.undo import offer_undo

if TYPE_CHECKING:
    from collections.abc import Sequence
    from contextlib import AbstractContextManager

    from django.http import HttpRequest, HttpResponse

    from console.broker.configs.plan import Line, Part, Plan
    from console.gateway.files import ConfigFile
    from console.people.audit.models import Entry

ACTION = "config.apply"
SALT = "console.files.plans"
ENTRIES_MAX = 1_000
OVERTAKEN, UNPROCESSABLE = 409, 422


class Recording(Protocol):
    """A function of console.people.audit.record that records a change while it is made."""

    def __call__(
        self, action: str, subject: str, *, before: Any, after: Any
    ) -> AbstractContextManager[Entry]: ...


@dataclass(frozen=True, slots=True)
class Shown:
    """A plan with everything that its page shows."""

    plan: Plan
    parts: tuple[tuple[Part, list[Line]], ...]
    counts: dict[str, int]
    costs: tuple[str, ...] = ()
    refusals: tuple[str, ...] = ()
    is_final: bool = False

    @property
    def broker_name(self) -> str:
        return subject_in(self.plan.name)[0]

    @property
    def file(self) -> ConfigFile:
        return subject_in(self.plan.name)[1]


def shown(plan: Plan, entries_max: int = ENTRIES_MAX) -> Shown:
    """Return a plan with its consequences; asks brokers."""
    parts = tuple((part, list(part.lines({}))) for part in plan.parts if part.now != part.wanted)
    counts = {verb: len(names) for verb, names in changed_of(plan).items()}
    if sum(counts.values()) > entries_max:
        text = _(
            "%(count)d entries are too many for this page. Use `manage.py config apply` instead."
        )
        return Shown(plan, (), counts, refusals=(text % {"count": sum(counts.values())},))
    try:
        found = costs(*subject_in(plan.name), plan)
    except PlanRefusedError as error:
        return Shown(plan, parts, counts, refusals=error.reasons)
    return Shown(plan, parts, counts, found.sentences, is_final=found.is_final)


def show(
    request: HttpRequest,
    plans: Sequence[Plan],
    *,
    back: str,
    undoes: int | None = None,
    reason: str = "",
    entries: Sequence[tuple[str, str]] = (),
    action: str = "",
    others: int = 0,
    problem: str = "",
    is_unconfirmed: bool = False,
) -> HttpResponse:
    """Render the changes; `entries` are a form's inputs, for the way back to it.

    `action` is the URL that applies them, if it isn't this page; `others` is how many entries
    someone else has changed meanwhile, which stay as they are.
    """
    open_plans = [shown(plan) for plan in plans if not plan.is_idle]
    is_overtaken = any(each.plan.is_overtaken for each in open_plans)
    final = next((each.broker_name for each in open_plans if each.is_final), "")
    context = {
        "shown": open_plans,
        "is_overtaken": is_overtaken,
        "is_refused": any(each.refusals for each in open_plans),
        "has_costs": any(each.costs for each in open_plans),
        "final": final,
        "token": sealed([each.plan for each in open_plans], undoes),
        "undoes": undoes,
        "reason": reason,
        "reason_characters_max": REASON_CHARACTERS_MAX,
        "back": back,
        "entries": entries,
        "action": action,
        "others": others,
        "problem": problem,
        "is_unconfirmed": is_unconfirmed,
    }
    status = 200
    if is_overtaken:
        status = OVERTAKEN
    elif problem or is_unconfirmed:
        status = UNPROCESSABLE
    return render(request, "files/plan.html", context, status=status)


def sealed(plans: Sequence[Plan], undoes: int | None) -> str:
    """Return plans signed, so that the browser can't alter them."""
    packed = [{"name": each.name, "seen": each.now, "wanted": each.wanted} for each in plans]
    return signing.dumps({"plans": packed, "undoes": undoes}, salt=SALT, compress=True)


def apply(request: HttpRequest, back: str) -> HttpResponse:
    """Apply plans, or show both versions if the state has changed since the preview."""
    try:
        data: dict[str, Any] = signing.loads(request.POST["token"], salt=SALT)
    except signing.BadSignature:
        messages.error(
            request, _("This plan didn't come from this console, so nothing was changed.")
        )
        return redirect(back)
    plans = [now_of(each) for each in data["plans"]]
    return finish(request, plans, back=back, undoes=data["undoes"])


def now_of(packed: dict[str, Any]) -> Plan:
    broker_name, file = subject_in(packed["name"])
    now = read(broker_name, file)
    return plan_of(broker_name, file, packed["seen"], now, packed["wanted"])


def finish(
    request: HttpRequest, plans: Sequence[Plan], *, back: str, undoes: int | None = None
) -> HttpResponse:
    """Apply plans once their consequences are confirmed.

    Raises:
        NotAllowedError: the person isn't allowed to change one of the entries.
    """
    for plan in plans:
        require_own(request, plan)
    reason = " ".join(request.POST.get("reason", "").split())[:REASON_CHARACTERS_MAX]
    open_plans = [shown(plan) for plan in plans if not plan.is_idle]
    final = next((each.broker_name for each in open_plans if each.is_final), "")
    is_confirmed = (
        not any(each.costs for each in open_plans) or request.POST.get("accepted") == "on"
    ) and (not final or request.POST.get("name") == final)
    if (
        not open_plans
        or not is_confirmed
        or any(each.plan.is_overtaken or each.refusals for each in open_plans)
    ):
        return show(
            request,
            plans,
            back=back,
            undoes=undoes,
            reason=reason,
            is_unconfirmed=bool(open_plans) and not is_confirmed and "token" in request.POST,
        )
    entry: Entry | None = None
    for at, each in enumerate(open_plans):
        try:
            entry = apply_one(partial(change, request), each, reason, undoes)
        except GatewayError as error:
            left = [reread(open_plan.plan) for open_plan in open_plans[at:]]
            problem = f"{error.what} {error.advice}".strip()
            return show(request, left, back=back, undoes=undoes, reason=reason, problem=problem)
    assert entry is not None
    changed = sum(sum(each.counts.values()) for each in open_plans)
    text = _("%(count)d entries of %(subject)s were changed.")
    names = ", ".join(each.plan.name for each in open_plans)
    sentence = text % {"count": changed, "subject": names}
    if len(open_plans) == 1:
        offer_undo(request, sentence, entry)
        only = open_plans[0]
        return redirect("files:show", only.broker_name, only.file)
    messages.success(request, sentence)
    return redirect("files:index")


def require_own(request: HttpRequest, plan: Plan) -> None:
    """Check the person's rights for every entry of a plan before applying it.

    Raises:
        NotAllowedError: the person isn't allowed to change one of the entries.
    """
    require_entries(rights_on(request), subject_in(plan.name)[1], touched_in(plan))


def apply_one(recording: Recording, each: Shown, reason: str, undoes: int | None = None) -> Entry:
    """Apply one plan under an audit log entry, and store the resulting version.

    Raises:
        GatewayError: the broker rejected a part; earlier parts remain applied.
    """
    plan, done = each.plan, list[str]()
    touched = touched_in(plan)
    before = {name: plan.now[name] for name in touched}
    after = {name: plan.wanted[name] for name in touched}
    with recording(ACTION, plan.name, before=before, after=after) as entry:
        entry.remark = reason
        if undoes is not None:
            entry.remark = (_("Undoes entry %(entry)d.") % {"entry": undoes} + f" {reason}").strip()
        try:
            carry_out(each.broker_name, each.file, plan, done.append)
        except GatewayError:
            # The audit log records the changes that were applied, not the wanted ones.
            entry.after = {name: after[name] if name in done else before[name] for name in touched}
            raise
        finally:
            if entry.after != after:
                entry.save(update_fields=["after"])
    keep_applied(each, by=entry.actor_name, reason=entry.remark, entry=entry.pk)
    return entry


def keep_applied(each: Shown, *, by: str, reason: str, entry: int) -> None:
    """Store a file's version after a change, or nothing if the broker has become unreachable."""
    try:
        entries = read(each.broker_name, each.file)
    except GatewayError:
        return
    keep(
        each.broker_name,
        each.file,
        entries,
        source=Source.APPLIED,
        by=by,
        reason=reason,
        entry=entry,
    )


def reread(plan: Plan) -> Plan:
    """Return a plan with the current state, because a part may have been applied."""
    broker_name, file = subject_in(plan.name)
    try:
        now = read(broker_name, file)
    except GatewayError:
        return plan
    found = {name: now.get(name) for name in plan.wanted}
    return replace(plan, seen=found, now=found)


def back_to(plan: Plan) -> str:
    broker_name, file = subject_in(plan.name)
    return reverse("files:show", args=[broker_name, file])
