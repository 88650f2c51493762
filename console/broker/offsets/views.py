"""Views of consumer offsets: show, preview a reset, apply it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.contrib import messages
from django.core import signing
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils.http import urlencode
from django.utils.translation import gettext as _

from console.accounts.actions import Action
from console.accounts.permissions import action_for, form_for, page, page_for, require
from console.accounts.rights import rights_on
from console.broker.offsets.forms import ResetForm, SubjectForm
from console.broker.offsets.plan import Mode, PlanError, ResetRequest, committed, make_plan
from console.broker.offsets.reset_progress import following_of
from console.gateway.access import gateway
from console.gateway.answers import TopicKind, known_lag
from console.gateway.errors import GatewayError
from console.lib.missing import MissingError
from console.lib.moment import now_ms
from console.lib.stored import BrokerQueue
from console.people.audit.models import Entry
from console.people.audit.record import change
from console.people.audit.undo import offer_undo
from console.ui.copies import CopyText, json_text, mqadmin, mqadmin_text
from console.ui.danger import Danger, Effect

if TYPE_CHECKING:
    from django.http import HttpRequest, HttpResponse

    from console.broker.offsets.plan import Plan
    from console.gateway.answers import ConsumeProgress

# Signed, so that `apply` does what the preview showed if the offsets haven't changed.
PLAN_SALT = "console.offsets.plan"
PLAN_SECONDS_MAX = 600
RESET_ACTION = "offset.reset"
# Neither a group nor a topic can contain a space.
SUBJECT_SEPARATOR = " · "


@page
def index(request: HttpRequest) -> HttpResponse:
    """Choose a group and a topic; show its offsets once both are chosen."""
    group = request.GET.get("group", "")
    topic = request.GET.get("topic", "")
    groups = [each for each in gateway().groups.all().values() if not each.is_system]
    chosen = group in {each.name for each in groups}
    progress = gateway().groups.progress(group) if chosen else None
    topics = topic_names(progress) if progress else []
    if progress and not topic and len(topics) == 1:
        topic = topics[0]
    context: dict[str, Any] = {
        "groups": groups,
        "group": group,
        "topic": topic,
        "topics": topics,
        "is_unknown_group": bool(group) and not chosen,
    }
    if progress and topic:
        context |= subject_context(progress, topic)
        watched = request.GET.get("watch", "")
        entry = reset_of(int(watched)) if watched.isdecimal() else None
        if entry is not None and entry.subject == subject_of(group, topic):
            context["following"] = following_of(entry, group, topic)
        if rights_on(request).may(Action.OFFSET, group):
            context["form"] = ResetForm(
                # No mode is preselected, because each can lose or repeat messages.
                initial={"group": group, "topic": topic},
                queues=context["queues"],
            )
    return render(request, "offsets/index.html", context)


def topic_names(progress: ConsumeProgress) -> list[str]:
    """Return topics for a reset of a group: its own first, then all client topics."""
    own = list(progress.topics)
    others = [
        name
        for name, topic in gateway().topics.all().items()
        if topic.kind is TopicKind.NORMAL and name not in own
    ]
    return own + others


def subject_context(progress: ConsumeProgress, topic: str) -> dict[str, Any]:
    """Return a group's state in one topic by queue, including queues it never read."""
    in_topic = progress.in_topic(topic)
    rows = {row.queue: row for row in in_topic}
    status = gateway().topics.status(topic)
    return {
        "rows": [
            {
                "status": each,
                "consumer_offset": row.consumer_offset if row else None,
                "lag": row.lag if row else None,
                "is_beyond_end": row is not None and row.is_beyond_end,
            }
            for each in status
            for row in [rows.get(each.queue)]
        ],
        "queues": [each.queue for each in status],
        "lag": known_lag(in_topic),
        "is_beyond_end": any(row.is_beyond_end for row in in_topic),
        "connections": gateway().groups.connections(progress.group),
        "read_at_ms": now_ms(),
    }


@page_for(Action.OFFSET)
def preview(request: HttpRequest) -> HttpResponse:
    """Show the effects of a reset; changes nothing."""
    subject = SubjectForm(request.GET)
    if not subject.is_valid():
        return redirect("offsets:index")
    group, topic = subject.cleaned_data["group"], subject.cleaned_data["topic"]
    require(request, Action.OFFSET, group)
    context = subject_context(gateway().groups.progress(group), topic)
    form = ResetForm(request.GET, queues=context["queues"])
    context |= {"form": form, "group": group, "topic": topic, "topics": [topic]}
    if form.is_valid():
        try:
            plan = plan_reset(form.reset_request())
        except PlanError as error:
            form.add_error(None, str(error))
        else:
            context |= {"plan": plan, "danger": danger_of(plan), "copies": copies_of(plan)}
    return render(request, "offsets/preview.html", context)


@form_for(Action.OFFSET)
def restore(request: HttpRequest, entry: int) -> HttpResponse:
    """Show the effects of undoing an earlier reset; a POST applies it if no offset has moved."""
    reset = reset_of(entry)
    if reset is None:
        raise MissingError(_("This reset doesn't exist."))
    group, _separator, topic = reset.subject.partition(SUBJECT_SEPARATOR)
    require(request, Action.OFFSET, group)
    context = subject_context(gateway().groups.progress(group), topic)
    context |= {"group": group, "topic": topic, "restored": reset}
    reset_request = ResetRequest(
        group=group, topic=topic, mode=Mode.RESTORE, offsets=offsets_before(reset)
    )
    try:
        plan = plan_reset(reset_request)
    except PlanError as error:
        context["problem"] = str(error)
    else:
        if request.method == "POST" and not plan.is_idle:
            if is_unchanged_since(plan, reset):
                return apply_plan(request, pack(plan))
            sentence = _(
                "Offsets have changed since that reset. Review the effect of undoing it now."
            )
            messages.warning(request, sentence)
        context |= {"plan": plan, "danger": danger_of(plan), "copies": copies_of(plan)}
    return render(request, "offsets/preview.html", context)


def danger_of(plan: Plan) -> Danger:
    """Return the effects of a reset on the group, with counts."""
    group, topic = plan.reset_request.group, plan.reset_request.topic
    if plan.is_online:
        text = _(
            "The group is consuming. The broker sends the new offsets to its consumers, which "
            "pause for about 10 seconds. The numbers may shift slightly because of messages "
            "consumed or received until then. The audit log records the offsets actually set."
        )
    else:
        text = _(
            "The group is offline. The broker stores exactly these offsets. If any offset "
            "changes before you confirm, nothing is applied."
        )
    new = sum(move.old is None for move in plan.moves)
    note = _("%(count)d without an offset so far") % {"count": new} if new else ""
    undo = _(
        "Undo restores the old offsets. If offsets have changed by then, you see a preview first."
    )
    return Danger(
        title=_("Reset offsets of %(group)s?") % {"group": group},
        text=text,
        effects=(
            Effect(
                _("Messages redelivered"),
                plan.redelivered,
                _("consumers receive them again"),
                is_bad=True,
            ),
            Effect(
                _("Messages skipped"),
                plan.skipped,
                _("this group won't consume them"),
                is_bad=True,
            ),
            Effect(_("Queues"), len(plan.moves), note),
        ),
        undo=undo,
        action=_("Reset offsets"),
        keep=_("Cancel"),
        address=reverse("offsets:apply"),
        back=f"{reverse('offsets:index')}?{urlencode({'group': group, 'topic': topic})}",
        icon="rotate-ccw",
        hidden={"token": signing.dumps(pack(plan), salt=PLAN_SALT)},
        refusal=_("The group is already at these offsets, so there's nothing to change.")
        if plan.is_idle
        else "",
    )


def copies_of(plan: Plan) -> list[CopyText]:
    """Return a reset as text; mqadmin resets all queues, by time."""
    reset_request = plan.reset_request
    moves = {
        str(move.queue): {
            "old": None if move.old is None else str(move.old),
            "new": str(move.new),
        }
        for move in plan.moves
    }
    value = json_text(
        {"group": reset_request.group, "topic": reset_request.topic, "offsets": moves}
    )
    if not reset_request.is_by_time:
        return [value]
    to = "now" if reset_request.mode is Mode.LATEST else reset_request.broker_timestamp_ms
    options: dict[str, object] = {
        "g": reset_request.group,
        "t": reset_request.topic,
        "s": to,
        "f": True,
    }
    return [mqadmin_text([mqadmin("resetOffsetByTime", options)]), value]


def is_unchanged_since(plan: Plan, reset: Entry) -> bool:
    """Whether the offsets are still those set by a reset."""
    return all(reset.after.get(str(move.queue)) == str(move.old) for move in plan.moves)


def offsets_before(reset: Entry) -> dict[BrokerQueue, int]:
    """Return the offsets that an entry replaced, omitting queues without an earlier offset."""
    return {
        BrokerQueue.parse(key): int(offset)
        for key, offset in (reset.before or {}).items()
        if offset is not None
    }


@action_for(Action.OFFSET)
def apply(request: HttpRequest) -> HttpResponse:
    """Apply the previewed reset, or show why that isn't possible."""
    try:
        plan = signing.loads(
            request.POST.get("token", ""), salt=PLAN_SALT, max_age=PLAN_SECONDS_MAX
        )
    except signing.BadSignature:
        messages.error(
            request, _("The preview has expired, so nothing was changed. Create a new preview.")
        )
        return redirect("offsets:index")
    require(request, Action.OFFSET, plan["group"])
    return apply_plan(request, plan)


def apply_plan(request: HttpRequest, plan: dict[str, Any]) -> HttpResponse:
    """Apply a plan unless it is outdated; report the result on the offsets page."""
    group, topic = plan["group"], plan["topic"]
    back = f"{reverse('offsets:index')}?{urlencode({'group': group, 'topic': topic})}"
    try:
        problem = changed_since(plan)
        if problem is not None:
            messages.error(request, problem)
            return redirect(back)
        done = carry_out(request, plan)
    except GatewayError as error:
        messages.error(request, f"{error.what} {error.advice}".strip())
        return redirect(back)
    if plan["is_online"]:
        back += f"&watch={done.pk}"
    sentence = _("Group %(group)s was reset in %(count)d queues of %(topic)s.")
    values = {"group": group, "count": len(done.after), "topic": topic}
    offer_undo(request, sentence % values, done)
    return redirect(back)


@page
def following(request: HttpRequest, entry: int) -> HttpResponse:
    """Show the part of the page that follows the consumers of a reset."""
    reset = reset_of(entry)
    if reset is None:
        raise MissingError(_("This reset doesn't exist."))
    group, _separator, topic = reset.subject.partition(SUBJECT_SEPARATOR)
    context = {"following": following_of(reset, group, topic)}
    return render(request, "offsets/_following.html", context)


def reset_of(entry: int) -> Entry | None:
    """Return the audit entry of a completed reset."""
    resets = Entry.objects.filter(action=RESET_ACTION, outcome=Entry.Outcome.DONE)
    return resets.filter(pk=entry).first()


def subject_of(group: str, topic: str) -> str:
    return f"{group}{SUBJECT_SEPARATOR}{topic}"


def plan_reset(reset_request: ResetRequest) -> Plan:
    brokers = gateway()
    return make_plan(brokers.topics, brokers.groups, brokers.offsets, reset_request)


def pack(plan: Plan) -> dict[str, Any]:
    """Encode a plan for the browser; 64-bit numbers are text."""
    reset_request = plan.reset_request
    return {
        "group": reset_request.group,
        "topic": reset_request.topic,
        "mode": reset_request.mode.value,
        "is_online": plan.is_online,
        "is_by_time": reset_request.is_by_time,
        "timestamp_ms": str(reset_request.broker_timestamp_ms),
        "moves": [
            [str(move.queue), None if move.old is None else str(move.old), str(move.new)]
            for move in plan.moves
        ],
    }


def changed_since(plan: dict[str, Any]) -> str | None:
    """Return why a plan is outdated. Offsets of an online group move all the time."""
    is_online = gateway().groups.connections(plan["group"]).is_online
    if is_online and not plan["is_online"]:
        return _(
            "Consumers connected after the preview, so nothing was applied. Refresh the "
            "preview and try again."
        )
    if plan["is_online"] and not is_online:
        return _(
            "The group's consumers disconnected after the preview, so nothing was applied. "
            "Refresh the preview and try again."
        )
    if not is_online:
        now = committed(gateway().groups, plan["group"], plan["topic"])
        for queue, old, _new in plan["moves"]:
            found = now.get(BrokerQueue.parse(queue))
            if found != (None if old is None else int(old)):
                return _(
                    "Offsets changed after the preview, so nothing was applied. Refresh the "
                    "preview and try again."
                )
    return None


def carry_out(request: HttpRequest, plan: dict[str, Any]) -> Entry:
    """Move the offsets under an audit entry that records the resulting offsets."""
    group, topic = plan["group"], plan["topic"]
    before = {queue: old for queue, old, _new in plan["moves"]}
    after = {queue: new for queue, _old, new in plan["moves"]}
    subject = subject_of(group, topic)
    with change(request, RESET_ACTION, subject, before=before, after=after) as entry:
        entry.remark = plan["mode"]
        if not plan["is_online"]:
            targets = {BrokerQueue.parse(queue): int(new) for queue, new in after.items()}
            gateway().offsets.commit(group, topic, targets)
            return entry
        if not plan["is_by_time"]:
            targets = {BrokerQueue.parse(queue): int(new) for queue, new in after.items()}
            gateway().offsets.move_online(group, topic, targets)
            return entry
        sent = gateway().offsets.reset_online(group, topic, int(plan["timestamp_ms"]))
        # Record the brokers' result, since messages may have arrived in the meantime.
        entry.after = {str(queue): str(offset) for queue, offset in sorted(sent.items())}
    return entry
