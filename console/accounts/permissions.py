"""Permissions of views: decorators for viewers, operators, administrators and single actions.

Each view has one of the decorators `page`, `operators_…` and `administrators_…`, or calls
`require_operator` or `require_administrator` itself. A view about a topic or a group uses `…_for`
with an action instead. Responses of decorated views are never cached.
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
    """Respond with 403 to anyone but administrators.

    Use it in a view that others can open and only administrators can submit. The middleware has
    already redirected people who aren't signed in.
    """
    if not may_administer(request.user):
        raise NotAllowedError(Role.ADMINISTRATOR)


def require_operator(request: HttpRequest) -> None:
    """Respond with 403 to viewers; see `require_administrator`."""
    rights_on(request).require_somewhere(Action.OPERATE)


def require(request: HttpRequest, action: Action, name: str) -> None:
    """Refuse people who aren't allowed this action on the topic or group."""
    rights_on(request).require(action, name)


def allowed(needed: Action, named: str = "") -> Callable[[View[P, Answer]], View[P, Answer]]:
    """Check an action before the view runs.

    `named` is the view's parameter with the topic or group. Without it, the view runs for people
    who are allowed the action somewhere, and calls `require` once it has the name.
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
    """Allow only administrators to run the view."""

    @wraps(view)
    def guarded(request: HttpRequest, /, *args: P.args, **kwargs: P.kwargs) -> Answer:
        require_administrator(request)
        return view(request, *args, **kwargs)

    return guarded


def operator_required(
    view: View[P, HttpResponse],
) -> View[P, HttpResponse]:
    """Allow only operators and administrators to run the view."""

    @wraps(view)
    def guarded(request: HttpRequest, /, *args: P.args, **kwargs: P.kwargs) -> HttpResponse:
        require_operator(request)
        return view(request, *args, **kwargs)

    return guarded


def page(
    view: View[P, HttpResponse],
) -> View[P, HttpResponse]:
    """Allow everyone who is signed in to open the page."""
    return require_safe(never_cache(view))


def form(
    view: View[P, HttpResponse],
) -> View[P, HttpResponse]:
    """Allow everyone who is signed in to open and submit the form, which changes their own data."""
    return require_http_methods(["GET", "HEAD", "POST"])(never_cache(view))


def action(
    view: View[P, Answer],
) -> View[P, Answer]:
    """Allow everyone who is signed in to POST; reject other methods."""
    return require_POST(never_cache(view))


def page_for(
    needed: Action, named: str = ""
) -> Callable[[View[P, HttpResponse]], View[P, HttpResponse]]:
    """Allow people with an action to open the page; see `allowed` for `named`."""
    return lambda view: allowed(needed, named)(page(view))


def form_for(
    needed: Action, named: str = ""
) -> Callable[[View[P, HttpResponse]], View[P, HttpResponse]]:
    """Allow people with an action to open and submit the form."""
    return lambda view: allowed(needed, named)(form(view))


def action_for(needed: Action, named: str = "") -> Callable[[View[P, Answer]], View[P, Answer]]:
    """Allow people with an action to POST; reject other methods."""
    return lambda view: allowed(needed, named)(action(view))


def operators_page(
    view: View[P, HttpResponse],
) -> View[P, HttpResponse]:
    """Allow operators and administrators to open the page."""
    return operator_required(page(view))


def operators_form(
    view: View[P, HttpResponse],
) -> View[P, HttpResponse]:
    """Allow operators and administrators to open and submit the form."""
    return operator_required(form(view))


def operators_action(
    view: View[P, HttpResponse],
) -> View[P, HttpResponse]:
    """Allow operators and administrators to POST; reject other methods."""
    return operator_required(action(view))


def administrators_page(
    view: View[P, HttpResponse],
) -> View[P, HttpResponse]:
    """Allow administrators to open the page."""
    return administrator_required(page(view))


def administrators_form(
    view: View[P, HttpResponse],
) -> View[P, HttpResponse]:
    """Allow administrators to open and submit the form."""
    return administrator_required(form(view))


def administrators_action(
    view: View[P, Answer],
) -> View[P, Answer]:
    """Allow administrators to POST; reject other methods."""
    return administrator_required(action(view))
