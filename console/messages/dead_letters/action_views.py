"""Pages that replay, discard and export dead letters."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from django.contrib import messages
from django.core import signing
from django.db import transaction
from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils.translation import gettext as _, ngettext

from broker_core.message import names
from console.accounts.actions import Action as Allowed
from console.accounts.permissions import action_for, form_for, page_for, require
from console.gateway.access import gateway
from console.gateway.errors import NotFoundError
from console.lib.csv_file import csv_lines
from console.lib.missing import MissingError
from console.lib.moment import now_ms
from console.messages.dead_letters import replaying
from console.messages.dead_letters.forms import DiscardForm, ReplayForm
from console.messages.dead_letters.models import (
    Action,
    Item,
    Outcome,
    Run,
    State,
    Target,
    forget_old_runs,
    stop_orphaned,
)
from console.messages.dead_letters.selection import Selection
from console.messages.dead_letters.views import letters_of
from console.people.audit.record import change, done
from console.ui.danger import Danger, Effect

if TYPE_CHECKING:
    from collections.abc import Sequence

    from django.http import HttpRequest

    from console.messages.dead_letters.reading import DeadLetter

TOKEN_SALT = "console.dead_letters"
TOKEN_SECONDS_MAX = 600
GROUPS_NAMED = 5
EXPORTS = {"csv": "text/csv; charset=utf-8", "jsonl": "application/x-ndjson; charset=utf-8"}
HEAD = (
    *("stored", "broker", "queue", "offset", "topic", "tag", "keys", "unique key", "retries"),
    *("size", "state"),
)


class ReplayRefusedError(Exception):
    """A replay that can't start; the text gives the reason for people."""


@dataclass(frozen=True, slots=True)
class Destination:
    """A destination topic, with the number of messages and the groups that read it."""

    topic: str
    count: int
    groups: tuple[str, ...]
    is_writable: bool


def chosen_of(request: HttpRequest, group: str, *, again: bool) -> tuple[Any, ...]:
    """Return the dead letters in a query string, and how many of them were handled before."""
    selection = Selection.of(request.GET)
    found = selection.among(letters_of(group, selection).found)
    before = sum(not each.is_open for each in found)
    return selection, (found if again else tuple(each for each in found if each.is_open)), before


@page_for(Allowed.REPLAY, "group")
def preview(request: HttpRequest, group: str) -> HttpResponse:
    """Show the effect of a replay without changing anything."""
    is_asked = "target" in request.GET or "rate" in request.GET
    form = ReplayForm(request.GET if is_asked else None)
    again = request.GET.get("again") == "on"
    selection, letters, before = chosen_of(request, group, again=again)
    context: dict[str, Any] = {
        "group": group,
        "form": form,
        "selection": selection,
        "letters": letters,
        "before": before,
        "read_at_ms": now_ms(),
    }
    if form.is_valid():
        if form.cleaned_data["trial"]:
            letters = letters[:1]
        target = Target(form.cleaned_data["target"])
        destinations = destinations_of(group, letters, target)
        if target is Target.ORIGIN:
            # Other groups read these topics too.
            for each in destinations:
                require(request, Allowed.SEND, each.topic)
        context["destinations"] = destinations
        context["danger"] = danger_of(group, selection, letters, form.cleaned_data, destinations)
    return render(request, "dead_letters/preview.html", context)


def destinations_of(group: str, letters: Sequence[DeadLetter], target: Target) -> list[Destination]:
    counts: dict[str, int] = {}
    for each in letters:
        topic = names.retry_topic(group) if target is Target.RETRY else each.topic
        counts[topic] = counts.get(topic, 0) + 1
    found = []
    for topic, count in sorted(counts.items()):
        is_writable = bool(topic) and bool(gateway().repair.writable(topic))
        try:
            groups = gateway().topics.consumers(topic) if is_writable else ()
        except NotFoundError:
            groups = ()
        found.append(Destination(topic, count, groups, is_writable))
    return found


def danger_of(
    group: str,
    selection: Selection,
    letters: Sequence[DeadLetter],
    wanted: dict[str, Any],
    destinations: Sequence[Destination],
) -> Danger:
    """Return the confirmation for a replay, with counts."""
    seconds = len(letters) // wanted["rate"]
    lost = sum(each.count for each in destinations if not each.is_writable)
    others = sorted({other for each in destinations for other in each.groups if other != group})
    repeated = sum(not each.is_open for each in letters)
    return Danger(
        title=_("Replay dead letters of %(group)s?") % {"group": group},
        text=_(
            "Each message is sent again, oldest first, with its unique key. The dead letters "
            "stay in their topic and are marked as replayed, so a second replay skips them."
        ),
        effects=(
            Effect(
                _("Messages sent"),
                len(letters) - lost,
                ngettext(
                    "in about %(seconds)d second", "in about %(seconds)d seconds", max(1, seconds)
                )
                % {"seconds": max(1, seconds)},
            ),
            Effect(
                _("Already replayed"),
                repeated,
                _("the group receives them again"),
                is_bad=True,
            ),
            Effect(
                _("Other groups that receive them too"),
                len(others) if wanted["target"] == Target.ORIGIN else 0,
                ", ".join(others[:GROUPS_NAMED]) if wanted["target"] == Target.ORIGIN else "",
                is_bad=True,
            ),
            Effect(_("Can't be sent"), lost, _("their topic doesn't accept messages"), is_bad=True),
        ),
        undo=_("You can cancel the rest, but messages already sent can't be recalled."),
        action=_("Replay"),
        keep=_("Cancel"),
        address=reverse("dead_letters:start", args=[group]),
        back=f"{reverse('dead_letters:group', args=[group])}?{selection.query}",
        icon="rotate-ccw",
        hidden={"token": sealed(group, selection, letters, wanted, destinations)},
        refusal="" if len(letters) > lost else _("There are no messages to send."),
    )


def packed(
    group: str,
    selection: Selection,
    letters: Sequence[DeadLetter],
    wanted: dict[str, Any],
    destinations: Sequence[Destination],
) -> dict[str, Any]:
    """Return a replay as signed data for the form."""
    return {
        "group": group,
        "target": wanted["target"],
        "rate": wanted["rate"],
        "query": selection.query,
        "topics": [each.topic for each in destinations],
        "places": [list(each.place) for each in letters],
    }


def sealed(
    group: str,
    selection: Selection,
    letters: Sequence[DeadLetter],
    wanted: dict[str, Any],
    destinations: Sequence[Destination],
) -> str:
    token = packed(group, selection, letters, wanted, destinations)
    return signing.dumps(token, salt=TOKEN_SALT, compress=True)


@action_for(Allowed.REPLAY, "group")
def start(request: HttpRequest, group: str) -> HttpResponse:
    """Start the replay from the preview, or show why it can't start."""
    back = redirect("dead_letters:group", group)
    try:
        token = signing.loads(
            request.POST.get("token", ""), salt=TOKEN_SALT, max_age=TOKEN_SECONDS_MAX
        )
    except signing.BadSignature:
        messages.error(
            request, _("The preview has expired, so nothing was changed. Create a new preview.")
        )
        return back
    if token["group"] != group:
        messages.error(request, _("This preview is for another group."))
        return back
    try:
        run = started(request, token)
    except ReplayRefusedError as error:
        messages.error(request, str(error))
        return back
    return redirect("dead_letters:run", run.pk)


def started(request: HttpRequest, token: dict[str, Any]) -> Run:
    """Start a replay under an audit log entry.

    Raises:
        ReplayRefusedError: the replay can't start now.
    """
    group = token["group"]
    stop_orphaned()
    if token["target"] == Target.ORIGIN:
        for topic in token["topics"]:
            require(request, Allowed.SEND, topic)
    problem = refusal(group)
    if problem:
        raise ReplayRefusedError(problem)
    with change(
        request,
        "dead-letter.replay",
        group,
        after={key: token[key] for key in ("target", "rate", "query")}
        | {"messages": len(token["places"])},
    ) as entry:
        run = made(request, group, Action.REPLAY, token["places"], Outcome.WAITING)
        Run.objects.filter(pk=run.pk).update(
            target=token["target"], rate=token["rate"], query=token["query"]
        )
        run.refresh_from_db()
        entry.after |= {"run": run.pk}
    replaying.launch(run)
    return run


def refusal(group: str) -> str | None:
    """Return why a replay can't start now."""
    running = Run.objects.filter(state=State.RUNNING)
    if running.filter(group=group).exists():
        return _("A replay of this group is already running. Wait for it to finish, or cancel it.")
    if running.count() >= replaying.RUNS_AT_ONCE_MAX:
        return _(
            "%(count)d replays are already running. Wait for one to finish, or cancel one."
        ) % {"count": replaying.RUNS_AT_ONCE_MAX}
    return None


def made(
    request: HttpRequest, group: str, action: Action, places: Sequence[Any], outcome: Outcome
) -> Run:
    """Store a run with all its items in one transaction."""
    with transaction.atomic():
        run = Run.objects.create(
            group=group,
            action=action,
            total=len(places),
            by=request.user.get_username(),
            user=request.user if request.user.is_authenticated else None,
        )
        Item.objects.bulk_create(
            [
                Item(
                    run=run,
                    group=group,
                    broker_name=broker_name,
                    queue_id=queue_id,
                    queue_offset=queue_offset,
                    commit_log_offset=commit_log_offset,
                    outcome=outcome,
                )
                for broker_name, queue_id, queue_offset, commit_log_offset in places
            ],
            batch_size=500,
        )
    forget_old_runs()
    return run


@form_for(Allowed.REPLAY, "group")
def discard(request: HttpRequest, group: str) -> HttpResponse:
    """Ask for a reason; a POST with a reason marks the dead letters as handled."""
    selection, letters, _before = chosen_of(request, group, again=False)
    form = DiscardForm(request.POST or None)
    back = f"{reverse('dead_letters:group', args=[group])}?{selection.query}"
    if request.method == "POST" and form.is_valid():
        run = discarded(request, group, selection, letters, form.cleaned_data["reason"])
        sentence = ngettext(
            "%(count)d dead letter discarded.",
            "%(count)d dead letters discarded.",
            run.total,
        )
        messages.success(request, sentence % {"count": run.total})
        return redirect("dead_letters:group", group)
    context = {
        "group": group,
        "form": form,
        "letters": letters,
        "selection": selection,
        "back": back,
    }
    return render(request, "dead_letters/discard.html", context)


def discarded(
    request: HttpRequest,
    group: str,
    selection: Selection,
    letters: Sequence[DeadLetter],
    reason: str,
) -> Run:
    """Mark dead letters as discarded under an audit log entry."""
    after = {"messages": len(letters), "reason": reason, "query": selection.query}
    with change(request, "dead-letter.discard", group, after=after):
        places = [each.place for each in letters]
        run = made(request, group, Action.DISCARD, places, Outcome.DISCARDED)
        Run.objects.filter(pk=run.pk).update(reason=reason, query=selection.query)
        run.end(State.DONE)
    return run


@action_for(Allowed.EXPORT)
def export(request: HttpRequest, group: str, kind: str) -> HttpResponse:
    """Return the selected dead letters with their bodies as a file."""
    return exported(request, group, kind)


def exported(request: HttpRequest, group: str, kind: str) -> HttpResponse:
    """Return a file of dead letters, and record the export."""
    if kind not in EXPORTS:
        raise MissingError(_("Dead letters can be exported as csv or jsonl."))
    require(request, Allowed.EXPORT, names.dlq_topic(group))
    _selection, letters, _before = chosen_of(request, group, again=True)
    done(request, "dead-letter.export", group)
    if kind == "csv":
        text = "".join(csv_lines(HEAD, map(values_of, letters)))
    else:
        text = jsonl_text(letters)
    answer = HttpResponse(text, content_type=EXPORTS[kind])
    answer["Content-Disposition"] = f'attachment; filename="dead-letters.{kind}"'
    return answer


def values_of(letter: DeadLetter) -> tuple[str, ...]:
    stored = letter.copy.stored
    return (
        str(stored.store_ms),
        stored.broker_name,
        str(stored.queue_id),
        str(stored.queue_offset),
        letter.topic,
        letter.tag,
        stored.keys,
        stored.uniq_key,
        str(stored.reconsume_times),
        str(stored.body_bytes),
        letter.item.outcome if letter.item else "open",
    )


def jsonl_text(letters: Sequence[DeadLetter]) -> str:
    lines = []
    for each in letters:
        stored = each.copy.stored
        row: dict[str, Any] = dict(zip(HEAD, values_of(each), strict=True))
        row["properties"] = dict(stored.properties)
        row["otherProperties"] = stored.other_properties
        # Bytes that aren't text are written as hex; a compressed body is inflated.
        try:
            row["body"] = None if stored.body is None else stored.body.decode()
        except UnicodeDecodeError:
            row["bodyHex"] = (stored.body or b"").hex()
        row["bodyIsCut"] = stored.is_cut
        lines.append(json.dumps(row, ensure_ascii=False))
    return "".join(f"{line}\n" for line in lines)
