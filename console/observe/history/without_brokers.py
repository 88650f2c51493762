"""Pages of a subject whose brokers don't respond: its history, and the error."""

from __future__ import annotations

from functools import wraps
from typing import TYPE_CHECKING, Any

from django.shortcuts import render

from console.gateway.errors import GatewayError, NotFoundError
from console.observe.history.metrics import QUEUE, QueuePlace
from console.observe.history.pages import history_context
from console.observe.history.reading import is_kept

if TYPE_CHECKING:
    from collections.abc import Callable

    from django.http import HttpRequest, HttpResponse

    View = Callable[..., HttpResponse]


def with_history_fallback(kind: str, name_of: Callable[..., str]) -> Callable[[View], View]:
    """Have a view show a subject's history while its brokers don't respond.

    `name_of` takes the URL's arguments by name.
    """

    def decorated(view: View) -> View:
        @wraps(view)
        def shown(request: HttpRequest, **parts: Any) -> HttpResponse:
            try:
                return view(request, **parts)
            except NotFoundError:
                raise
            except GatewayError as error:
                name = name_of(**parts)
                if not is_kept(kind, name):
                    raise
                context = history_context(request, kind, name)
                context |= {"problem": error, "name": title_of(kind, name)}
                return render(request, "history/without_brokers.html", context, status=503)

        return shown

    return decorated


def title_of(kind: str, name: str) -> str:
    place = QueuePlace.parse(name) if kind == QUEUE else None
    return name if place is None else f"{place.topic} · {place.broker}:{place.queue_id}"
