"""Pages that create, change, delete and undo: preview the plan, then apply it."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from django.contrib import messages
from django.core import signing
from django.http import Http404
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils.translation import gettext as _

from console.accounts.permissions import require
from console.broker.configs.plan import sealed_state, unsealed, unsealed_state
from console.broker.configs.plan_page import PlanSurroundings, show_plan
from console.broker.configs.services import PlanRefusedError, master_names, refuse_system, state_of
from console.gateway.errors import GatewayError
from console.people.audit.undo import offer_undo
from console.ui.danger import ask, is_confirmed

if TYPE_CHECKING:
    from collections.abc import Callable

    from django.http import HttpRequest, HttpResponse

    from console.accounts.actions import Action
    from console.broker.configs.forms import ConfigForm
    from console.broker.configs.plan import Plan
    from console.broker.configs.services import ConfigService, Configured, Words
    from console.people.audit.models import Entry
    from console.ui.danger import Danger


@dataclass(frozen=True, slots=True)
class ConfigPages:
    """The pages of one kind of configuration.

    `namespace` is the prefix of their URL names and templates.
    """

    service: ConfigService
    namespace: str

    @property
    def words(self) -> Words:
        return self.service.words

    @property
    def action(self) -> Action:
        """The action that is required to change one."""
        return self.service.action

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
        form = self.service.new_form(request.POST or None, master_names())
        if not is_post:
            form.initial.update(self._like(request.GET.get("like", ""), form))
        if is_post and form.is_valid() and not is_going_back(request):
            require(request, self.action, form.name)
            return self._show_plan(request, self.service.making(form), form=form)
        return self._show(request, form)

    def _like(self, name: str, form: ConfigForm[Any]) -> dict[str, Any]:
        """Return another configuration's values as initial values, or {} if it doesn't exist."""
        other = self.service.requests.every().get(name) if name else None
        config = next(iter(other.configs.values()), None) if other is not None else None
        if config is None or form.reserved(name) is not None:
            return {}
        values = {key: value for key, value in asdict(config).items() if key in form.fields}
        return values | {form.name_field: f"{name}-copy"}

    def edit(self, request: HttpRequest, subject: Configured) -> HttpResponse:
        refuse_system(subject)
        if "token" in request.POST:
            return self._apply(request, subject.name)
        if not subject.configs:
            raise Http404
        form = self.service.change_form(request.POST or None, subject)
        now = sealed_state(state_of(subject), self.service.kind)
        if not form.is_bound:
            form.add_seen_state(now)
            # A link may propose values; the plan shows them like any others.
            proposed = {key: request.GET[key] for key in form.fields if key in request.GET}
            form.initial.update(proposed)
        elif form.is_valid() and not is_going_back(request):
            # Programs may leave this field out and replace the current state.
            seen = form.cleaned_data["seen"]
            try:
                plan = self.service.changing(subject, form, seen)
            except signing.BadSignature:
                form.add_error(
                    None,
                    _(
                        "This form didn't come from this console. "
                        "Open the page again and submit it there."
                    ),
                )
                form.add_seen_state(now)
            else:
                form.add_seen_state(now)
                return self._show_plan(request, plan, form=form)
        return self._show(request, form, subject)

    def undo(self, request: HttpRequest, entry_id: int) -> HttpResponse:
        """Preview undoing a change; a POST undoes it unless the state has changed since."""
        if "token" in request.POST:
            return self._apply(request)
        plan = self.service.undoing(entry_id)
        if request.method != "POST" or plan.is_overtaken or plan.is_idle:
            return self._show_plan(request, plan)
        return self._carry_out(request, plan)

    def delete(
        self,
        request: HttpRequest,
        subject: Configured,
        danger: Danger,
        delete: Callable[[], Entry],
    ) -> HttpResponse:
        """Ask, then run `delete`, which returns the audit log entry."""
        refuse_system(subject)
        now = state_of(subject)
        asked = replace(
            danger, hidden={**danger.hidden, "seen": sealed_state(now, self.service.kind)}
        )
        if request.method != "POST":
            return ask(request, asked)
        if not is_confirmed(request, danger):
            problem = _("The name you typed doesn't match, so nothing was deleted.")
            return ask(request, replace(asked, problem=problem))
        if danger.refusal:
            return ask(request, replace(asked, problem=_("Nothing was deleted.")))
        try:
            seen = request.POST.get("seen", "")
            is_same = not seen or unsealed_state(seen, self.service.kind) == now
        except signing.BadSignature:
            is_same = False
        if not is_same:
            problem = _(
                "The configuration changed while this page was open, so nothing was deleted. "
                "Review it and try again."
            )
            return ask(request, replace(asked, problem=problem))
        try:
            entry = delete()
        except GatewayError as error:
            return ask(request, replace(asked, problem=f"{error.what} {error.advice}".strip()))
        offer_undo(request, str(self.words.deleted) % {"name": subject.name}, entry)
        return redirect(self.list_name)

    def _apply(self, request: HttpRequest, name: str | None = None) -> HttpResponse:
        """Apply a plan, or show both versions if the state has changed since the preview."""
        try:
            data = unsealed(request.POST["token"], self.service.kind)
        except signing.BadSignature:
            data = {}
        if not data or (name is not None and data["name"] != name):
            messages.error(
                request, _("This plan didn't come from this console, so nothing was changed.")
            )
            return redirect(self.list_name)
        wanted = data["wanted"]
        is_whole = self.service.is_whole
        if any(not is_whole(values) for values in wanted.values() if values is not None):
            raise Http404
        plan = self.service.plan(data["name"], data["seen"], wanted, data["undoes"])
        if plan.is_overtaken or plan.is_idle:
            return self._show_plan(request, plan)
        return self._carry_out(request, plan)

    def _carry_out(self, request: HttpRequest, plan: Plan) -> HttpResponse:
        """Apply a plan once its objection is accepted."""
        try:
            is_accepted = request.POST.get("accepted") == "on"
            entry = self.service.carry_out(request, plan, is_accepted=is_accepted)
        except PlanRefusedError:
            return self._show_plan(request, plan, is_refused=True)
        except GatewayError as error:
            problem = f"{error.what} {error.advice}".strip()
            return self._show_plan(request, self.service.reread(plan), problem=problem)
        offer_undo(request, self.service.success_message(plan), entry)
        if plan.verb == "delete":
            return redirect(self.list_name)
        return redirect(self.detail_name, plan.name)

    def _show_plan(
        self,
        request: HttpRequest,
        plan: Plan,
        *,
        form: ConfigForm[Any] | None = None,
        problem: str = "",
        is_refused: bool = False,
    ) -> HttpResponse:
        refusal, objection = (None, None) if plan.is_idle else self.service.objections(plan)
        is_new = all(values is None for values in plan.now.values())
        around = PlanSurroundings(
            back=reverse(self.list_name) if is_new else reverse(self.detail_name, args=[plan.name]),
            is_new=is_new,
            entries=entries_of(form) if form is not None else (),
            problem=problem,
            refusal=refusal,
            objection=objection,
            is_refused=is_refused,
            fields=self.service.form.base_fields,
        )
        return show_plan(request, plan, self, around)

    def _show(
        self, request: HttpRequest, form: ConfigForm[Any], subject: Configured | None = None
    ) -> HttpResponse:
        context = {"form": form, "pages": self, "is_new": subject is None, "subject": subject}
        return render(request, f"{self.namespace}/form.html", context)


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
