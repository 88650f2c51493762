"""Permissions of views: viewers look, operators change things, administrators see to the rest.

Each view has one of the decorators `page`, `operators_…` and `administrators_…`, or asks
`require_operator` or `require_administrator` by itself. No cache keeps the answers of the
decorated.
"""

from __future__ import annotations

from functools import wraps
from typing import TYPE_CHECKING, Concatenate, ParamSpec, TypeVar

from django.core.exceptions import PermissionDenied
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from console.accounts.roles import Role, may_administer, may_operate

if TYPE_CHECKING:
    from collections.abc import Callable

    from django.http import HttpRequest, HttpResponse
    from django.http.response import HttpResponseBase

P = ParamSpec("P")
Answer = TypeVar("Answer", bound="HttpResponseBase")


class NotAllowedError(PermissionDenied):
    """The view needs a role that the person does not have."""

    def __init__(self, role: Role) -> None:
        super().__init__()
        self.role = role


def require_administrator(request: HttpRequest) -> None:
    """Refuse all others with 403; the middleware already sent strangers to the sign-in page.

    For a view that others may look at and only administrators may submit.
    """
    if not may_administer(request.user):
        raise NotAllowedError(Role.ADMINISTRATOR)


def require_operator(request: HttpRequest) -> None:
    """Refuse viewers with 403, as `require_administrator` refuses operators, too."""
    if not may_operate(request.user):
        raise NotAllowedError(Role.OPERATOR)


def administrator_required(
    view: Callable[Concatenate[HttpRequest, P], Answer],
) -> Callable[Concatenate[HttpRequest, P], Answer]:
    """Refuse all others before the view runs."""

    @wraps(view)
    def guarded(request: HttpRequest, /, *args: P.args, **kwargs: P.kwargs) -> Answer:
        require_administrator(request)
        return view(request, *args, **kwargs)

    return guarded


def operator_required(
    view: Callable[Concatenate[HttpRequest, P], HttpResponse],
) -> Callable[Concatenate[HttpRequest, P], HttpResponse]:
    """Refuse viewers before the view runs."""

    @wraps(view)
    def guarded(request: HttpRequest, /, *args: P.args, **kwargs: P.kwargs) -> HttpResponse:
        require_operator(request)
        return view(request, *args, **kwargs)

    return guarded


def page(
    view: Callable[Concatenate[HttpRequest, P], HttpResponse],
) -> Callable[Concatenate[HttpRequest, P], HttpResponse]:
    """Let everyone who has signed in look."""
    return require_safe(never_cache(view))


def form(
    view: Callable[Concatenate[HttpRequest, P], HttpResponse],
) -> Callable[Concatenate[HttpRequest, P], HttpResponse]:
    """Let everyone who has signed in look, and submit the form: it changes what is their own."""
    return require_http_methods(["GET", "HEAD", "POST"])(never_cache(view))


def operators_page(
    view: Callable[Concatenate[HttpRequest, P], HttpResponse],
) -> Callable[Concatenate[HttpRequest, P], HttpResponse]:
    """Let operators and administrators look."""
    return operator_required(page(view))


def operators_form(
    view: Callable[Concatenate[HttpRequest, P], HttpResponse],
) -> Callable[Concatenate[HttpRequest, P], HttpResponse]:
    """Let operators and administrators look, and submit the form."""
    return operator_required(form(view))


def operators_action(
    view: Callable[Concatenate[HttpRequest, P], HttpResponse],
) -> Callable[Concatenate[HttpRequest, P], HttpResponse]:
    """Let operators and administrators POST; refuse other methods."""
    return operator_required(require_POST(never_cache(view)))


def administrators_page(
    view: Callable[Concatenate[HttpRequest, P], HttpResponse],
) -> Callable[Concatenate[HttpRequest, P], HttpResponse]:
    """Let administrators look."""
    return administrator_required(page(view))


def administrators_form(
    view: Callable[Concatenate[HttpRequest, P], HttpResponse],
) -> Callable[Concatenate[HttpRequest, P], HttpResponse]:
    """Let administrators look, and submit the form."""
    return administrator_required(form(view))


def administrators_action(
    view: Callable[Concatenate[HttpRequest, P], Answer],
) -> Callable[Concatenate[HttpRequest, P], Answer]:
    """Let administrators POST; refuse other methods."""
    return administrator_required(require_POST(never_cache(view)))
