"""Permissions of views: who may look, change things on some names, or see to the rest.

Each view has one of the decorators `page`, `operators_…` and `administrators_…`, or asks
`require_operator` or `require_administrator` by itself. A view about a topic or a group has
`…_for` an action instead. No cache keeps the answers of the decorated.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import TYPE_CHECKING, Concatenate, ParamSpec, TypeAlias, TypeVar

from django.http import HttpRequest
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from console.accounts.actions import Action
from console.accounts.rights import NotAllowedError, rights_on
from console.accounts.roles import Role, may_administer

if TYPE_CHECKING:
    from django.http import HttpResponse
    from django.http.response import HttpResponseBase

P = ParamSpec("P")
Answer = TypeVar("Answer", bound="HttpResponseBase")
View: TypeAlias = Callable[Concatenate[HttpRequest, P], Answer]


def require_administrator(request: HttpRequest) -> None:
    """Refuse all others with 403; the middleware already sent strangers to the sign-in page.

    For a view that others may look at and only administrators may submit.
    """
    if not may_administer(request.user):
        raise NotAllowedError(Role.ADMINISTRATOR)


def require_operator(request: HttpRequest) -> None:
    """Refuse viewers with 403, as `require_administrator` refuses operators, too."""
    rights_on(request).require_somewhere(Action.OPERATE)


def require(request: HttpRequest, action: Action, name: str) -> None:
    """Refuse whoever may not do this with a topic or a group."""
    rights_on(request).require(action, name)


def allowed(needed: Action, named: str = "") -> Callable[[View[P, Answer]], View[P, Answer]]:
    """Refuse, before the view runs, whoever may not do this.

    `named` is the view's parameter with the topic or the group; without one the view begins for
    whoever may do it somewhere, and asks `require` once it knows the name.
    """

    def decorate(
        view: View[P, Answer],
    ) -> View[P, Answer]:
        @wraps(view)
        def guarded(request: HttpRequest, /, *args: P.args, **kwargs: P.kwargs) -> Answer:
            if named:
                require(request, needed, str(kwargs[named]))
            else:
                rights_on(request).require_somewhere(needed)
            return view(request, *args, **kwargs)

        return guarded

    return decorate


def administrator_required(
    view: View[P, Answer],
) -> View[P, Answer]:
    """Refuse all others before the view runs."""

    @wraps(view)
    def guarded(request: HttpRequest, /, *args: P.args, **kwargs: P.kwargs) -> Answer:
        require_administrator(request)
        return view(request, *args, **kwargs)

    return guarded


def operator_required(
    view: View[P, HttpResponse],
) -> View[P, HttpResponse]:
    """Refuse viewers before the view runs."""

    @wraps(view)
    def guarded(request: HttpRequest, /, *args: P.args, **kwargs: P.kwargs) -> HttpResponse:
        require_operator(request)
        return view(request, *args, **kwargs)

    return guarded


def page(
    view: View[P, HttpResponse],
) -> View[P, HttpResponse]:
    """Let everyone who has signed in look."""
    return require_safe(never_cache(view))


def form(
    view: View[P, HttpResponse],
) -> View[P, HttpResponse]:
    """Let everyone who has signed in look, and submit the form: it changes what is their own."""
    return require_http_methods(["GET", "HEAD", "POST"])(never_cache(view))


def action(
    view: View[P, Answer],
) -> View[P, Answer]:
    """Take a POST of everyone who has signed in; refuse other methods."""
    return require_POST(never_cache(view))


def page_for(
    needed: Action, named: str = ""
) -> Callable[[View[P, HttpResponse]], View[P, HttpResponse]]:
    """Let whoever may do something look; `allowed` says how a name is found."""
    return lambda view: allowed(needed, named)(page(view))


def form_for(
    needed: Action, named: str = ""
) -> Callable[[View[P, HttpResponse]], View[P, HttpResponse]]:
    """Let whoever may do something look, and submit the form."""
    return lambda view: allowed(needed, named)(form(view))


def action_for(needed: Action, named: str = "") -> Callable[[View[P, Answer]], View[P, Answer]]:
    """Let whoever may do something POST; refuse other methods."""
    return lambda view: allowed(needed, named)(action(view))


def operators_page(
    view: View[P, HttpResponse],
) -> View[P, HttpResponse]:
    """Let operators and administrators look."""
    return operator_required(page(view))


def operators_form(
    view: View[P, HttpResponse],
) -> View[P, HttpResponse]:
    """Let operators and administrators look, and submit the form."""
    return operator_required(form(view))


def operators_action(
    view: View[P, HttpResponse],
) -> View[P, HttpResponse]:
    """Let operators and administrators POST; refuse other methods."""
    return operator_required(action(view))


def administrators_page(
    view: View[P, HttpResponse],
) -> View[P, HttpResponse]:
    """Let administrators look."""
    return administrator_required(page(view))


def administrators_form(
    view: View[P, HttpResponse],
) -> View[P, HttpResponse]:
    """Let administrators look, and submit the form."""
    return administrator_required(form(view))


def administrators_action(
    view: View[P, Answer],
) -> View[P, Answer]:
    """Let administrators POST; refuse other methods."""
    return administrator_required(action(view))
