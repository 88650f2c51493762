"""Create, change, delete and undo: preview the plan, then apply it under an audit log entry."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields, replace
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from django.contrib import messages
from django.core import signing
from django.core.exceptions import PermissionDenied
from django.http import Http404
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import reverse
from django.utils.translation import gettext as _

from console.accounts.actions import Action
from console.accounts.permissions import require
from console.broker.configs.plan import Plan, sealed_state, unsealed, unsealed_state
from console.broker.configs.plan_page import PlanSurroundings, show_plan
from console.gateway.access import gateway
from console.gateway.errors import GatewayError
from console.lib.missing import MissingError
from console.people.audit.models import Entry
from console.people.audit.record import change
from console.people.audit.undo import offer_undo, undo_address
from console.ui.danger import ask, is_confirmed

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from django.http import HttpRequest, HttpResponse
    from django.utils.functional import Promise

    from console.broker.configs.forms import ConfigForm
    from console.broker.configs.plan import State
    from console.ui.danger import Danger

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
class ConfigPages:
    """The pages of one kind of configuration.

    `kind` is the audit log's word for it ("topic" makes "topic.create"), `namespace` is the prefix
    of its URL names and templates, `config` the dataclass of its values.
    """

    kind: str
    namespace: str
    words: Words
    form: type[ConfigForm[Any]]
    config: type[Any]
    requests: Requests

    @property
    def action(self) -> Action:
        """The action that is required to change one."""
        return Action(f"{self.kind}.change")

    @property
    def list_name(self) -> str:
        return f"{self.namespace}:list"

    @property
    def detail_name(self) -> str:
        return f"{self.namespace}:detail"

    @property
    def edit_name(self) -> str:
        return f"{self.namespace}:edit"

    @property
    def create_name(self) -> str:
        return f"{self.namespace}:create"

    @property
    def label_name(self) -> str:
        return f"{self.namespace}:label"

    @property
    def delete_name(self) -> str:
        return f"{self.namespace}:delete"

    def create(self, request: HttpRequest) -> HttpResponse:
        if "token" in request.POST:
            return self._apply(request)
        is_post = request.method == "POST"
        form = self.form(
            request.POST or None,
            broker_names=[node.broker_name for node in gateway().cluster.registered().masters],
            used_names=self.requests.every() if is_post else (),
        )
        if not is_post:
            form.initial.update(self._like(request.GET.get("like", ""), form))
        if is_post and form.is_valid() and not is_going_back(request):
            require(request, self.action, form.name)
            plan = making(form, self.kind)
            return self._show_plan(request, plan, form=form)
        return self._show(request, form)

    def _like(self, name: str, form: ConfigForm[Any]) -> dict[str, Any]:
        """Return another configuration's values as initial values, or {} if it doesn't exist."""
        other = self.requests.every().get(name) if name else None
        config = next(iter(other.configs.values()), None) if other is not None else None
        if config is None or form.reserved(name) is not None:
            return {}
        values = {key: value for key, value in asdict(config).items() if key in form.fields}
        return values | {form.name_field: f"{name}-copy"}

    def edit(self, request: HttpRequest, subject: Configured) -> HttpResponse:
        refuse_system(subject)
        if "token" in request.POST:
            return self._apply(request, subject.name)
        original = next(iter(subject.configs.values()), None)
        if original is None:
            raise Http404
        form = self.form(
            request.POST or None, broker_names=list(subject.configs), original=original
        )
        now = state_of(subject)
        if not form.is_bound:
            form.add_seen_state(sealed_state(now, self.kind))
            # A link may propose values; the plan shows them like any others.
            proposed = {key: request.GET[key] for key in form.fields if key in request.GET}
            form.initial.update(proposed)
        elif form.is_valid() and not is_going_back(request):
            try:
                # Programs may leave this field out and replace the current state.
                token = form.cleaned_data["seen"]
                seen = unsealed_state(token, self.kind) if token else now
            except signing.BadSignature:
                form.add_error(
                    None,
                    _(
                        "This form didn't come from this console. "
                        "Open the page again and submit it there."
                    ),
                )
                form.add_seen_state(sealed_state(now, self.kind))
            else:
                form.add_seen_state(sealed_state(now, self.kind))
                wanted = wanted_by(form)
                plan = Plan(subject.name, on(wanted, seen), on(wanted, now), wanted, kind=self.kind)
                return self._show_plan(request, plan, form=form)
        return self._show(request, form, subject)

    def undo(self, request: HttpRequest, entry_id: int) -> HttpResponse:
        """Preview undoing a change; a POST undoes it unless the state has changed since."""
        if "token" in request.POST:
            return self._apply(request)
        plan = self.undoing(entry_id)
        if request.method != "POST" or plan.is_overtaken or plan.is_idle:
            return self._show_plan(request, plan)
        return self._carry_out(request, plan)

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
        return self._plan(entry.subject, seen or {}, wanted, entry.pk)

    def delete(
        self,
        request: HttpRequest,
        subject: Configured,
        danger: Danger,
        act: Callable[[], None],
        before: Callable[[], Any],
        after: Any = None,
    ) -> HttpResponse:
        """Ask, then run `act`; the audit log stores the result of `before`, and `after`."""
        refuse_system(subject)
        now = state_of(subject)
        asked = replace(danger, hidden={**danger.hidden, "seen": sealed_state(now, self.kind)})
        if request.method != "POST":
            return ask(request, asked)
        if not is_confirmed(request, danger):
            problem = _("The name you typed doesn't match, so nothing was deleted.")
            return ask(request, replace(asked, problem=problem))
        if danger.refusal:
            return ask(request, replace(asked, problem=_("Nothing was deleted.")))
        try:
            seen = request.POST.get("seen", "")
            is_same = not seen or unsealed_state(seen, self.kind) == now
        except signing.BadSignature:
            is_same = False
        if not is_same:
            problem = _(
                "The configuration changed while this page was open, so nothing was deleted. "
                "Review it and try again."
            )
            return ask(request, replace(asked, problem=problem))
        try:
            entry = self.deleted(request, subject.name, act, before(), after)
        except GatewayError as error:
            return ask(request, replace(asked, problem=f"{error.what} {error.advice}".strip()))
        offer_undo(request, str(self.words.deleted) % {"name": subject.name}, entry)
        return redirect(self.list_name)

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

    def _apply(self, request: HttpRequest, name: str | None = None) -> HttpResponse:
        """Apply a plan, or show both versions if the state has changed since the preview."""
        try:
            data = unsealed(request.POST["token"], self.kind)
        except signing.BadSignature:
            data = {}
        if not data or (name is not None and data["name"] != name):
            messages.error(
                request, _("This plan didn't come from this console, so nothing was changed.")
            )
            return redirect(self.list_name)
        wanted = data["wanted"]
        if any(not self._is_whole(values) for values in wanted.values() if values is not None):
            raise Http404
        plan = self._plan(data["name"], data["seen"], wanted, data["undoes"])
        if plan.is_overtaken or plan.is_idle:
            return self._show_plan(request, plan)
        return self._carry_out(request, plan)

    def _carry_out(self, request: HttpRequest, plan: Plan) -> HttpResponse:
        """Apply a plan once its objection is accepted."""
        try:
            entry = self.carry_out(request, plan, is_accepted=request.POST.get("accepted") == "on")
        except PlanRefusedError:
            return self._show_plan(request, plan, is_refused=True)
        except GatewayError as error:
            problem = f"{error.what} {error.advice}".strip()
            return self._show_plan(request, self._reread(plan), problem=problem)
        offer_undo(request, self.success_message(plan), entry)
        if plan.verb == "delete":
            return redirect(self.list_name)
        return redirect(self.detail_name, plan.name)

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

    def _reread(self, plan: Plan) -> Plan:
        """Return the plan with the current state, because a part may have been applied."""
        try:
            now = on(plan.wanted, self._now(plan.name))
        except GatewayError:
            return plan
        return replace(plan, seen=now, now=now)

    def _now(self, name: str) -> State:
        subject = self.requests.every().get(name)
        if subject is None:
            return {}
        refuse_system(subject)
        return state_of(subject)

    def _plan(self, name: str, seen: State, wanted: State, undoes: int | None) -> Plan:
        now = self._now(name)
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
        return side if all(self._is_whole(values) for values in side.values()) else None

    def _is_whole(self, values: Any) -> bool:
        """Return whether the values are complete; an older console may have stored other ones."""
        names = {each.name for each in fields(self.config)}
        return isinstance(values, dict) and values.keys() == names

    def _show_plan(
        self,
        request: HttpRequest,
        plan: Plan,
        *,
        form: ConfigForm[Any] | None = None,
        problem: str = "",
        is_refused: bool = False,
    ) -> HttpResponse:
        refusal, objection = (None, None) if plan.is_idle else self.objections(plan)
        is_new = all(values is None for values in plan.now.values())
        around = PlanSurroundings(
            back=reverse(self.list_name) if is_new else reverse(self.detail_name, args=[plan.name]),
            is_new=is_new,
            entries=entries_of(form) if form is not None else (),
            problem=problem,
            refusal=refusal,
            objection=objection,
            is_refused=is_refused,
            fields=self.form.base_fields,
        )
        return show_plan(request, plan, self, around)

    def _show(
        self, request: HttpRequest, form: ConfigForm[Any], subject: Configured | None = None
    ) -> HttpResponse:
        context = {"form": form, "pages": self, "is_new": subject is None, "subject": subject}
        return render(request, f"{self.namespace}/form.html", context)


def making(form: ConfigForm[Any], kind: str) -> Plan:
    """Return the plan of a valid form."""
    nothing: State = dict.fromkeys(form.chosen_brokers)
    return Plan(form.name, nothing, nothing, wanted_by(form), kind=kind)


def refuse_system(subject: Configured) -> None:
    """Refuse changes to objects that the broker itself depends on."""
    if subject.is_system:
        raise PermissionDenied


def is_going_back(request: HttpRequest) -> bool:
    """Return whether the user goes back from the plan to the form."""
    return "back" in request.POST


def entries_of(form: ConfigForm[Any]) -> list[tuple[str, str]]:
    """Return a form's inputs, so that the plan's page can link back to it."""
    kept = form.data
    return [
        (name, str(value))
        for name in kept
        if name in form.fields
        for value in (kept.getlist(name) if hasattr(kept, "getlist") else [kept[name]])
    ]


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
