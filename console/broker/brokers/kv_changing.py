"""Changes of entries in the key-value table as plans per name server."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from django.shortcuts import get_object_or_404
from django.urls import reverse
from django.utils.translation import gettext as _

from console.broker.configs.plan import Plan
from console.gateway.access import gateway
from console.gateway.errors import GatewayError
from console.gateway.naming import NameServerView
from console.lib.missing import MissingError
from console.people.audit.models import Entry
from console.people.audit.record import change
from console.ui.danger import Danger, Effect

if TYPE_CHECKING:
    from collections.abc import Mapping

    from django.http import HttpRequest

    from console.broker.configs.plan import State, Values

KIND = "name-server"
UNDONE = (f"{KIND}.put", f"{KIND}.delete")


@dataclass(frozen=True, slots=True)
class KvEntry:
    """An entry's value on each name server that responds."""

    namespace: str
    key: str
    state: State
    silent: tuple[str, ...]

    @property
    def is_anywhere(self) -> bool:
        return any(values is not None for values in self.state.values())

    @property
    def value(self) -> str | None:
        """The value on the first name server that has the entry."""
        held = next((values for values in self.state.values() if values is not None), None)
        return None if held is None else str(held["value"])

    def plan(self, value: str | None, seen: State | None = None) -> Plan:
        """Return the plan to store a value on every name server, or to delete it if None."""
        then = None if value is None else self.values(value)
        wanted: State = dict.fromkeys(self.state, then)
        return Plan(self.subject, seen or self.state, self.state, wanted, kind=KIND)

    @property
    def subject(self) -> str:
        return f"{self.namespace} {self.key}"

    def values(self, value: str) -> Values:
        # Audit log entries store both names separately, because names may contain spaces.
        return {"namespace": self.namespace, "key": self.key, "value": value}


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of a change."""

    entry: Entry
    problem: str


def entry_of(namespace: str, key: str) -> KvEntry:
    """Ask all name servers for an entry.

    Raises:
        GatewayError: no name server responded.
    """
    answers = gateway().naming.views("", namespace)
    views = {a: each for a, each in answers.items() if isinstance(each, NameServerView)}
    silent = {a: each for a, each in answers.items() if isinstance(each, GatewayError)}
    if not views and silent:
        raise next(iter(silent.values()))
    bare = KvEntry(namespace, key, {}, tuple(silent))
    values = {address: view.entries.get(key) for address, view in views.items()}
    state: State = {
        address: None if value is None else bare.values(value) for address, value in values.items()
    }
    return KvEntry(namespace, key, state, tuple(silent))


def names_in(*sides: Any) -> tuple[str, str]:
    """Return the namespace and key of a plan or an audit log entry.

    Raises:
        MissingError: the entry doesn't have them, because an older console wrote it.
    """
    for side in sides:
        for values in (side or {}).values():
            if isinstance(values, dict) and {"namespace", "key"} <= values.keys():
                return str(values["namespace"]), str(values["key"])
    raise MissingError(
        _(
            "This entry was written by an earlier version of the console and doesn't contain "
            "enough detail to undo."
        )
    )


def current(data: Mapping[str, Any]) -> Plan:
    """Return a plan that was shown, updated with the current state."""
    seen, wanted = data["seen"], data["wanted"]
    found = entry_of(*names_in(wanted, seen))
    now: State = {address: found.state.get(address) for address in wanted}
    return Plan(found.subject, seen or now, now, wanted, data["undoes"], kind=KIND)


def undoing(entry: Entry) -> Plan:
    """Return the plan to undo a change, from the current state.

    Raises:
        MissingError: one of its name servers doesn't respond or was removed.
    """
    found = entry_of(*names_in(entry.before, entry.after))
    after: State = entry.after
    gone = [address for address in after if address not in found.state]
    if gone:
        text = _("%(servers)s isn't reporting its entries. Try undoing again when it responds.")
        raise MissingError(text % {"servers": ", ".join(gone)})
    now: State = {address: found.state[address] for address in after}
    wanted: State = {address: entry.before.get(address) for address in after}
    return Plan(found.subject, after, now, wanted, entry.pk, kind=KIND)


def objection_to(plan: Plan) -> str:
    """Return the objection that the user must accept before the plan is applied, or ""."""
    silent = entry_of(*names_in(plan.wanted, plan.now, plan.seen)).silent
    if not silent:
        return ""
    text = _(
        "%(servers)s isn't responding and wasn't changed. Clients may get different values "
        "from different name servers."
    )
    return text % {"servers": ", ".join(silent)}


def action_of(plan: Plan) -> str:
    """Return the audit log's action for a plan."""
    return f"{KIND}.delete" if plan.verb == "delete" else f"{KIND}.put"


def done_message(plan: Plan) -> str:
    """Return the message after a plan was applied."""
    _namespace, key = names_in(plan.wanted, plan.now)
    if plan.undoes is not None:
        return _("%(key)s was restored.") % {"key": key}
    if plan.verb == "delete":
        return _("%(key)s was deleted.") % {"key": key}
    return _("%(key)s was saved on every name server.") % {"key": key}


def apply_plan(request: HttpRequest, plan: Plan) -> Outcome:
    """Apply a plan under one audit log entry; stop at the first name server that fails."""
    namespace, key = names_in(plan.wanted, plan.now)
    naming, problem = gateway().naming, ""
    with change(request, action_of(plan), plan.name, before=plan.now, after=plan.wanted) as entry:
        if plan.undoes is not None:
            entry.remark = _("Undoes entry %(entry)d.") % {"entry": plan.undoes}
        for address, values in plan.wanted.items():
            if values == plan.now.get(address):
                continue
            try:
                if values is None:
                    naming.remove(address, namespace, key)
                else:
                    naming.put(address, namespace, key, str(values["value"]))
            except GatewayError as error:
                problem = f"{address}: {error.what} {error.advice}".strip()
                entry.outcome, entry.remark = Entry.Outcome.FAILED, problem
                break
    return Outcome(entry, problem)


LIST = "brokers:name-servers"


def list_url(namespace: str) -> str:
    return f"{reverse(LIST)}?{urlencode({'namespace': namespace})}"


def danger_of(found: KvEntry) -> Danger:
    """Return the confirmation for deleting an entry.

    Raises:
        MissingError: no name server has the entry.
    """
    if not found.is_anywhere:
        raise MissingError(_("No name server has an entry for %(key)s.") % {"key": found.key})
    silent = Effect(
        _("Name servers that aren't responding and will keep the entry"),
        len(found.silent),
        ", ".join(found.silent),
        is_bad=True,
    )
    return Danger(
        title=_("Delete %(key)s?") % {"key": found.key},
        text=_(
            "The entry is deleted from every name server. Clients of ordered topics may depend "
            "on it."
        ),
        undo=_("You can undo this from the notification or the audit log."),
        action=_("Delete"),
        keep=_("Cancel"),
        address=reverse("brokers:kv-delete", args=[found.namespace, found.key]),
        back=list_url(found.namespace),
        effects=(silent,) if found.silent else (),
    )


def undoable(entry: int) -> Entry:
    found: Entry = get_object_or_404(Entry, pk=entry, action__in=UNDONE, outcome=Entry.Outcome.DONE)
    return found
