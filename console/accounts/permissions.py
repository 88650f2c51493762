"""Permissions of views: everyone who has signed in may look, administrators may change things.

Each view has one of four decorators: `page`, `administrators_page`, `administrators_form` and
`administrators_action`, or asks `require_administrator` by itself. No cache keeps the answers of
the four.
"""

from __future__ import annotations

from functools import wraps
from typing import TYPE_CHECKING, Concatenate, ParamSpec

from django.core.exceptions import PermissionDenied
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods, require_POST, require_safe

if TYPE_CHECKING:
    from collections.abc import Callable

    from django.http import HttpRequest, HttpResponse

P = ParamSpec("P")


def require_administrator(request: HttpRequest) -> None:
    """Refuse readers with 403; the middleware already sent strangers to the sign-in page.

    For a view that readers may look at and only administrators may submit.
    """
    if not (request.user.is_authenticated and request.user.is_staff):
        raise PermissionDenied


def administrator_required(
    view: Callable[Concatenate[HttpRequest, P], HttpResponse],
) -> Callable[Concatenate[HttpRequest, P], HttpResponse]:
    """Refuse readers before the view runs."""

    @wraps(view)
    def guarded(request: HttpRequest, /, *args: P.args, **kwargs: P.kwargs) -> HttpResponse:
        require_administrator(request)
        return view(request, *args, **kwargs)

    return guarded


def page(
    view: Callable[Concatenate[HttpRequest, P], HttpResponse],
) -> Callable[Concatenate[HttpRequest, P], HttpResponse]:
    """Let everyone who has signed in look."""
    return require_safe(never_cache(view))


def administrators_page(
    view: Callable[Concatenate[HttpRequest, P], HttpResponse],
) -> Callable[Concatenate[HttpRequest, P], HttpResponse]:
    """Let administrators look."""
    return administrator_required(page(view))


def administrators_form(
    view: Callable[Concatenate[HttpRequest, P], HttpResponse],
) -> Callable[Concatenate[HttpRequest, P], HttpResponse]:
    """Let administrators look, and submit the form."""
    return administrator_required(require_http_methods(["GET", "HEAD", "POST"])(never_cache(view)))


def administrators_action(
    view: Callable[Concatenate[HttpRequest, P], HttpResponse],
) -> Callable[Concatenate[HttpRequest, P], HttpResponse]:
    """Let administrators POST; refuse other methods."""
    return administrator_required(require_POST(never_cache(view)))
