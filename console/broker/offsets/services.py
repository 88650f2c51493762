"""Consumer offsets: read, plan, reset and restore them, for the pages and the API."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.core import signing
from django.urls import reverse
from django.utils.http import urlencode
from django.utils.translation import gettext as _

from console.broker.offsets.plan import Mode, Plan, ResetRequest, committed, make_plan
from console.gateway.access import gateway
from console.gateway.answers import known_lag
from console.lib.missing import MissingError
from console.lib.moment import now_ms
from console.lib.stored import BrokerQueue
from console.people.audit.models import Entry
from console.people.audit.record import change
from console.ui.danger import Danger, Effect

if TYPE_CHECKING:
    from django.http import HttpRequest

    from console.gateway.answers import ConsumeProgress

# Signed, so that `apply` does what the preview showed if the offsets haven't changed.
PLAN_SALT = "console.offsets.plan"
RESET_ACTION = "offset.reset"
# Neither a group nor a topic can contain a space.
SUBJECT_SEPARATOR = " · "


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


def reset_of(entry: int) -> Entry | None:
    """Return the audit entry of a completed reset."""
    resets = Entry.objects.filter(action=RESET_ACTION, outcome=Entry.Outcome.DONE)
    return resets.filter(pk=entry).first()


def get_reset(entry: int) -> tuple[Entry, str, str]:
    """Return the audit entry, group and topic of a completed reset, or the 404 page."""
    reset = reset_of(entry)
    if reset is None:
        raise MissingError(_("This reset doesn't exist."))
    group, _separator, topic = reset.subject.partition(SUBJECT_SEPARATOR)
    return reset, group, topic


def subject_of(group: str, topic: str) -> str:
    return f"{group}{SUBJECT_SEPARATOR}{topic}"


def plan_reset(reset_request: ResetRequest) -> Plan:
    brokers = gateway()
    return make_plan(brokers.topics, brokers.groups, brokers.offsets, reset_request)


def plan_restore(reset: Entry, group: str, topic: str) -> Plan:
    """Return the plan that restores the offsets from before a reset.

    Raises:
        PlanError: the queues no longer exist.
    """
    offsets = offsets_before(reset)
    return plan_reset(ResetRequest(group=group, topic=topic, mode=Mode.RESTORE, offsets=offsets))


def done_message(group: str, topic: str, entry: Entry) -> str:
    """Return the message after a reset."""
    sentence = _("Group %(group)s was reset in %(count)d queues of %(topic)s.")
    return sentence % {"group": group, "count": len(entry.after), "topic": topic}


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
