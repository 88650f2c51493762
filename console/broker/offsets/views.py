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
from console.broker.offsets.plan import Mode, PlanError
from console.broker.offsets.reset_progress import following_of
from console.broker.offsets.services import (
    PLAN_SALT,
    carry_out,
    changed_since,
    danger_of,
    done_message,
    get_reset,
    is_unchanged_since,
    pack,
    plan_reset,
    plan_restore,
    reset_of,
    subject_context,
    subject_of,
)
from console.gateway.access import gateway
from console.gateway.answers import TopicKind
from console.gateway.errors import GatewayError
from console.people.audit.undo import offer_undo
from console.ui.copies import CopyText, json_text, mqadmin, mqadmin_text

if TYPE_CHECKING:
    from django.http import HttpRequest, HttpResponse

    from console.broker.offsets.plan import Plan
    from console.gateway.answers import ConsumeProgress

PLAN_SECONDS_MAX = 600


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
    reset, group, topic = get_reset(entry)
    require(request, Action.OFFSET, group)
    context = subject_context(gateway().groups.progress(group), topic)
    context |= {"group": group, "topic": topic, "restored": reset}
    try:
        plan = plan_restore(reset, group, topic)
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
    offer_undo(request, done_message(group, topic, done), done)
    return redirect(back)


@page
def following(request: HttpRequest, entry: int) -> HttpResponse:
    """Show the part of the page that follows the consumers of a reset."""
    reset, group, topic = get_reset(entry)
    context = {"following": following_of(reset, group, topic)}
    return render(request, "offsets/_following.html", context)
