"""Access to the SQL page, for administrators and people with the permission."""

from __future__ import annotations

from functools import wraps
from typing import TYPE_CHECKING, Concatenate, ParamSpec

from django.core.exceptions import PermissionDenied
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_POST, require_safe

from console.accounts.roles import may_query

if TYPE_CHECKING:
    from collections.abc import Callable

    from django.http import HttpRequest
    from django.http.response import HttpResponseBase

P = ParamSpec("P")


def guarded(
    view: Callable[Concatenate[HttpRequest, P], HttpResponseBase],
) -> Callable[Concatenate[HttpRequest, P], HttpResponseBase]:
    """Return 403 to people who can't query the lake."""

    @wraps(view)
    def asked(request: HttpRequest, /, *args: P.args, **kwargs: P.kwargs) -> HttpResponseBase:
        if not may_query(request.user):
            raise PermissionDenied
        return view(request, *args, **kwargs)

    return asked


def sql_page(
    view: Callable[Concatenate[HttpRequest, P], HttpResponseBase],
) -> Callable[Concatenate[HttpRequest, P], HttpResponseBase]:
    """Allow GET requests from people who can query the lake."""
    return guarded(require_safe(never_cache(view)))


def sql_action(
    view: Callable[Concatenate[HttpRequest, P], HttpResponseBase],
) -> Callable[Concatenate[HttpRequest, P], HttpResponseBase]:
    """Allow POST requests from people who can query the lake."""
    return guarded(require_POST(never_cache(view)))
