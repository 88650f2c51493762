"""Who may see the SQL page: administrators, and those who were given the permission."""

from __future__ import annotations

from functools import wraps
from typing import TYPE_CHECKING, Concatenate, ParamSpec

from django.core.exceptions import PermissionDenied
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_POST, require_safe

from console.sql.rights import may_query

if TYPE_CHECKING:
    from collections.abc import Callable

    from django.http import HttpRequest
    from django.http.response import HttpResponseBase

P = ParamSpec("P")


def guarded(
    view: Callable[Concatenate[HttpRequest, P], HttpResponseBase],
) -> Callable[Concatenate[HttpRequest, P], HttpResponseBase]:
    """Refuse those who may not ask the lake, with 403."""

    @wraps(view)
    def asked(request: HttpRequest, /, *args: P.args, **kwargs: P.kwargs) -> HttpResponseBase:
        if not may_query(request.user):
            raise PermissionDenied
        return view(request, *args, **kwargs)

    return asked


def sql_page(
    view: Callable[Concatenate[HttpRequest, P], HttpResponseBase],
) -> Callable[Concatenate[HttpRequest, P], HttpResponseBase]:
    """Let those look who may ask the lake."""
    return guarded(require_safe(never_cache(view)))


def sql_action(
    view: Callable[Concatenate[HttpRequest, P], HttpResponseBase],
) -> Callable[Concatenate[HttpRequest, P], HttpResponseBase]:
    """Let those POST who may ask the lake."""
    return guarded(require_POST(never_cache(view)))
