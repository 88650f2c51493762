"""Create, change, delete: validate, ask the brokers under an audit entry, say how it went."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Protocol

from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.http import Http404
from django.shortcuts import redirect, render
from django.utils.translation import gettext as _

from console.audit.record import change
from console.configs.seen import changed_meanwhile, seen
from console.gateway.access import gateway
from console.gateway.errors import GatewayError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from django.http import HttpRequest, HttpResponse
    from django.utils.functional import Promise

    from console.configs.forms import ConfigForm


class Configured(Protocol):
    """A topic or a group: a name with its configuration, a dataclass, on each broker with it."""

    @property
    def name(self) -> str: ...

    @property
    def configs(self) -> Mapping[str, Any]: ...

    @property
    def is_system(self) -> bool: ...


@dataclass(frozen=True, slots=True)
class Words:
    """What the pages say; `%(name)s` stands for the name."""

    plural: Promise
    new: Promise
    create: Promise
    created: Promise
    edit: Promise
    changed: Promise
    delete: Promise
    delete_question: Promise
    deleted: Promise
    type_name: Promise
    wrong_name: Promise


@dataclass(frozen=True, slots=True)
class ConfigPages:
    """The pages of one kind of configuration.

    `kind` is the audit's word for it ("topic" makes "topic.create"), `namespace` that of its
    addresses and templates. `taken` asks the brokers which names there are, `save` stores a
    configuration on some of them. `objection` says what a change would do that nobody expects,
    which has to be confirmed; None where there is nothing.
    """

    kind: str
    namespace: str
    words: Words
    form: type[ConfigForm[Any]]
    taken: Callable[[], Iterable[str]]
    save: Callable[[Any, Sequence[str]], None]
    objection: Callable[[Mapping[str, Any], Any], str | None] = lambda _befores, _after: None

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
    def delete_name(self) -> str:
        return f"{self.namespace}:delete"

    def create(self, request: HttpRequest) -> HttpResponse:
        is_post = request.method == "POST"
        form = self.form(
            request.POST or None,
            broker_names=[node.broker_name for node in gateway().cluster.registered().masters],
            taken=self.taken() if is_post else (),
        )
        if is_post and form.is_valid():
            after = asdict(form.config()) | {"brokers": form.chosen_brokers}
            if self._is_saved(request, "create", form, None, after):
                return self._tell(request, self.words.created, form.name)
        return self._show(request, form)

    def edit(self, request: HttpRequest, subject: Configured) -> HttpResponse:
        refuse_system(subject)
        original = next(iter(subject.configs.values()), None)
        if original is None:
            raise Http404
        form = self.form(
            request.POST or None, broker_names=list(subject.configs), original=original
        )
        if request.method == "POST" and form.is_valid() and self._may_save(form, subject):
            before = {name: asdict(subject.configs[name]) for name in form.chosen_brokers}
            after = dict.fromkeys(form.chosen_brokers, asdict(form.config()))
            if self._is_saved(request, "update", form, before, after):
                return self._tell(request, self.words.changed, subject.name)
        form.was_opened_on(seen(subject.configs))
        return self._show(request, form, subject)

    def _may_save(self, form: ConfigForm[Any], subject: Configured) -> bool:
        """Return whether nobody else changed it and nothing unexpected would come of it."""
        changes = changed_meanwhile(form.cleaned_data["seen"], subject.configs, form)
        if changes:
            sentence = _("Somebody changed it while this form was open: %(changes)s")
            advice = _("Your entries are below; save again to put them in its place.")
            form.add_error(None, f"{sentence % {'changes': ' '.join(changes)}} {advice}")
            return False
        if form.cleaned_data["accepted"]:
            return True
        befores = {name: subject.configs[name] for name in form.chosen_brokers}
        objection = self.objection(befores, form.config())
        if objection is not None:
            form.object(objection)
        return objection is None

    def delete(
        self,
        request: HttpRequest,
        subject: Configured,
        act: Callable[[], None],
        before: Callable[[], Any],
    ) -> HttpResponse:
        """Do what `act` does if the name was typed; the audit keeps what `before` returns."""
        refuse_system(subject)
        detail = redirect(self.detail_name, subject.name)
        if request.POST.get("name") != subject.name:
            messages.error(request, str(self.words.wrong_name))
            return detail
        try:
            with change(request, f"{self.kind}.delete", subject.name, before=before()):
                act()
        except GatewayError as error:
            messages.error(request, error.what)
            return detail
        messages.success(request, str(self.words.deleted) % {"name": subject.name})
        return redirect(self.list_name)

    def _is_saved(
        self, request: HttpRequest, verb: str, form: ConfigForm[Any], before: Any, after: Any
    ) -> bool:
        """Save what the form says under an audit entry; the form says why that failed."""
        try:
            with change(request, f"{self.kind}.{verb}", form.name, before=before, after=after):
                self.save(form.config(), form.chosen_brokers)
        except GatewayError as error:
            form.add_error(None, error.what)
            return False
        return True

    def _tell(self, request: HttpRequest, sentence: Promise, name: str) -> HttpResponse:
        messages.success(request, str(sentence) % {"name": name})
        return redirect(self.detail_name, name)

    def _show(
        self, request: HttpRequest, form: ConfigForm[Any], subject: Configured | None = None
    ) -> HttpResponse:
        context = {"form": form, "pages": self, "is_new": subject is None, "subject": subject}
        return render(request, f"{self.namespace}/form.html", context)


def refuse_system(subject: Configured) -> None:
    """Keep what the broker itself depends on out of reach, whatever the page offered."""
    if subject.is_system:
        raise PermissionDenied
