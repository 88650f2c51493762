"""Who may do what: administrators change things, everyone who signed in may look."""

from __future__ import annotations

from functools import wraps
from typing import TYPE_CHECKING, Concatenate, ParamSpec

from django.core.exceptions import PermissionDenied

if TYPE_CHECKING:
    from collections.abc import Callable

    from django.http import HttpRequest, HttpResponse

P = ParamSpec("P")


def administrator_required(
    view: Callable[Concatenate[HttpRequest, P], HttpResponse],
) -> Callable[Concatenate[HttpRequest, P], HttpResponse]:
    """Refuse readers with 403; strangers were sent to sign in by the middleware."""

    @wraps(view)
    def guarded(request: HttpRequest, /, *args: P.args, **kwargs: P.kwargs) -> HttpResponse:
        if not (request.user.is_authenticated and request.user.is_staff):
            raise PermissionDenied
        return view(request, *args, **kwargs)

    return guarded
