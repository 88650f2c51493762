"""Create, change, delete and restore topics and groups: the plan, then the audited change."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields, replace
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from django.core.exceptions import PermissionDenied
from django.http import Http404
from django.shortcuts import get_object_or_404
from django.utils.translation import gettext as _

from console.accounts.actions import Action
from console.accounts.permissions import require
from console.broker.configs.plan import Plan, unsealed_state
from console.gateway.access import gateway
from console.gateway.errors import GatewayError
from console.lib.missing import MissingError
from console.people.audit.models import Entry
from console.people.audit.record import change
from console.people.audit.undo import undo_address

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from django.http import HttpRequest, QueryDict
    from django.utils.functional import Promise

    from console.broker.configs.forms import ConfigForm
    from console.broker.configs.plan import State

Config = TypeVar("Config")


class PlanRefusedError(Exception):
    """A plan that wasn't applied: it was refused, or its objection wasn't accepted."""

    def __init__(self, refusal: str, objection: str) -> None:
        super().__init__(refusal or objection)
        self.refusal = refusal
        self.objection = objection


class Configured(Protocol):
    """A topic or group: a name with its configuration, a dataclass, on each of its brokers."""

    @property
    def name(self) -> str: ...

    @property
    def configs(self) -> Mapping[str, Any]: ...

    @property
    def is_system(self) -> bool: ...


@dataclass(frozen=True, slots=True)
class Words:
    """The texts of the pages; `%(name)s` is replaced with the name."""

    plural: Promise
    new: Promise
    created: Promise
    edit: Promise
    changed: Promise
    deleted: Promise
    undone: Promise


@dataclass(frozen=True, slots=True)
class Requests:
    """The broker requests for one kind of configuration.

    `every` returns all configurations by name, `save` stores one on some brokers, `remove` deletes
    a configuration created by a plan. `objection` returns a side effect that the user has to
    accept, `in_use` why undoing a creation can't simply delete it, both None if there is nothing.
    `put_back` restores other data that a deletion removed.
    """

    every: Callable[[], Mapping[str, Configured]]
    save: Callable[[Any, Sequence[str]], None]
    remove: Callable[[str], None]
    in_use: Callable[[str], str | None]
    objection: Callable[[Mapping[str, Any], Any], str | None] = lambda _befores, _after: None
    put_back: Callable[[Entry], None] = lambda _entry: None


@dataclass(frozen=True, slots=True)
class ConfigService:
    """Changes one kind of configuration, for its pages and the API.

    `kind` is the audit log's word for it ("topic" makes "topic.create"), `config` the dataclass of
    its values.
    """

    kind: str
    words: Words
    form: type[ConfigForm[Any]]
    config: type[Any]
    requests: Requests

    @property
    def action(self) -> Action:
        """The action that is required to change one."""
        return Action(f"{self.kind}.change")

    def new_form(self, data: QueryDict | None, brokers: Sequence[str]) -> ConfigForm[Any]:
        """Return the form of a new configuration on some brokers."""
        used_names = self.requests.every() if data is not None else ()
        return self.form(data, broker_names=brokers, used_names=used_names)

    def change_form(self, data: QueryDict | None, subject: Configured) -> ConfigForm[Any]:
        """Return the form to change a configuration that at least one broker has."""
        original = next(iter(subject.configs.values()))
        return self.form(data, broker_names=list(subject.configs), original=original)

    def making(self, form: ConfigForm[Any]) -> Plan:
        """Return the plan to create the configuration in a valid form."""
        nothing: State = dict.fromkeys(form.chosen_brokers)
        return Plan(form.name, nothing, nothing, wanted_by(form), kind=self.kind)

    def changing(self, subject: Configured, form: ConfigForm[Any], seen: str) -> Plan:
        """Return the plan to change a configuration to the values in a valid form.

        `seen` is the sealed state that the form was opened on; empty for the current one.

        Raises:
            signing.BadSignature: `seen` isn't from this console.
        """
        now, wanted = state_of(subject), wanted_by(form)
        before = unsealed_state(seen, self.kind) if seen else now
        return Plan(subject.name, on(wanted, before), on(wanted, now), wanted, kind=self.kind)

    def undoing(self, entry_id: int) -> Plan:
        """Return the plan to undo an entry, or raise the 404 page."""
        actions = [f"{self.kind}.{verb}" for verb in ("create", "update", "delete", "purge")]
        entry = get_object_or_404(Entry, pk=entry_id, action__in=actions)
        if not undo_address(entry):
            raise Http404
        wanted, seen = self._configs_of(entry.before), self._configs_of(entry.after)
        if entry.action == f"{self.kind}.create" and seen is not None:
            wanted = dict.fromkeys(seen)
        if not wanted:
            raise MissingError(
                _(
                    "This entry was written by an earlier version of the console and doesn't "
                    "contain enough detail to undo."
                )
            )
        return self.plan(entry.subject, seen or {}, wanted, entry.pk)

    def deleted(
        self, request: HttpRequest, name: str, act: Callable[[], None], before: Any, after: Any
    ) -> Entry:
        """Run `act` under an audit log entry.

        Raises:
            GatewayError: a broker rejected it.
        """
        with change(request, f"{self.kind}.delete", name, before=before, after=after) as entry:
            act()
        return entry

    def carry_out(self, request: HttpRequest, plan: Plan, *, is_accepted: bool) -> Entry:
        """Apply a plan under an audit log entry.

        Raises:
            PlanRefusedError: the plan can't be applied, or its objection wasn't accepted.
            GatewayError: a broker rejected it; a part may have been applied.
        """
        require(request, self.action, plan.name)
        refusal, objection = self.objections(plan)
        if refusal or (objection and not is_accepted):
            raise PlanRefusedError(refusal or "", objection or "")
        undone = Entry.objects.get(pk=plan.undoes) if plan.undoes is not None else None
        action = f"{self.kind}.{plan.verb}"
        before = None if plan.verb == "create" else plan.now
        after = None if plan.verb == "delete" else plan.wanted
        with change(request, action, plan.name, before=before, after=after) as entry:
            if undone is not None:
                entry.remark = _("Undoes entry %(entry)d.") % {"entry": undone.pk}
            self._store(plan)
            if undone is not None and undone.action.endswith(".delete"):
                self.requests.put_back(undone)
        return entry

    def success_message(self, plan: Plan) -> str:
        """Return the message after a plan was applied."""
        words = {
            "create": self.words.created,
            "update": self.words.changed,
            "delete": self.words.deleted,
        }
        sentence = self.words.undone if plan.undoes is not None else words[plan.verb]
        return str(sentence) % {"name": plan.name}

    def _store(self, plan: Plan) -> None:
        if plan.verb == "delete":
            self.requests.remove(plan.name)
            return
        for part in plan.parts:
            if part.wanted is not None and part.wanted != part.now:
                self.requests.save(self.config(**part.wanted), part.brokers)

    def objections(self, plan: Plan) -> tuple[str | None, str | None]:
        """Return the plan's refusal, and the objection that must be accepted."""
        if plan.verb == "delete":
            return self.requests.in_use(plan.name), None
        for part in plan.parts:
            if part.now is None or part.wanted is None:
                continue
            befores = dict.fromkeys(part.brokers, self.config(**part.now))
            objection = self.requests.objection(befores, self.config(**part.wanted))
            if objection is not None:
                return None, objection
        return None, None

    def reread(self, plan: Plan) -> Plan:
        """Return the plan with the current state, because a part may have been applied."""
        try:
            now = on(plan.wanted, self.current(plan.name))
        except GatewayError:
            return plan
        return replace(plan, seen=now, now=now)

    def current(self, name: str) -> State:
        subject = self.requests.every().get(name)
        if subject is None:
            return {}
        refuse_system(subject)
        return state_of(subject)

    def plan(self, name: str, seen: State, wanted: State, undoes: int | None) -> Plan:
        now = self.current(name)
        if all(values is None for values in wanted.values()):
            # A deletion applies to every broker.
            wanted = dict.fromkeys({**wanted, **now})
        return Plan(name, on(wanted, seen), on(wanted, now), wanted, undoes, kind=self.kind)

    def _configs_of(self, side: Any) -> State | None:
        """Return the configurations on one side of an entry."""
        if isinstance(side, dict):
            side = side.get("configs", side)
        if not isinstance(side, dict) or not side:
            return None
        return side if all(self.is_whole(values) for values in side.values()) else None

    def is_whole(self, values: Any) -> bool:
        """Return whether the values are complete; an older console may have stored other ones."""
        names = {each.name for each in fields(self.config)}
        return isinstance(values, dict) and values.keys() == names


def master_names() -> list[str]:
    return [node.broker_name for node in gateway().cluster.registered().masters]


def refuse_system(subject: Configured) -> None:
    """Refuse changes to objects that the broker itself depends on."""
    if subject.is_system:
        raise PermissionDenied


def wanted_by(form: ConfigForm[Any]) -> State:
    return {broker: asdict(form.config()) for broker in form.chosen_brokers}


def state_of(subject: Configured) -> State:
    return {broker: asdict(config) for broker, config in subject.configs.items()}


def addressed(configs: Mapping[str, Config]) -> list[tuple[str, Config]]:
    """Return each configuration with the address of its broker, if one is registered."""
    masters = {node.broker_name: node.address for node in gateway().cluster.registered().masters}
    return [(masters[broker], config) for broker, config in configs.items() if broker in masters]


def on(brokers: Mapping[str, Any], state: State) -> State:
    """Return the part of a state that concerns some brokers."""
    return {broker: state.get(broker) for broker in brokers}
