"""Pages of a subject whose brokers do not answer: what the history has of it, and what is wrong."""

from __future__ import annotations

from functools import wraps
from typing import TYPE_CHECKING, Any

from django.shortcuts import render

from console.gateway.errors import GatewayError, NotFoundError
from console.history.metrics import QUEUE, QueuePlace
from console.history.pages import history_context
from console.history.reading import is_kept

if TYPE_CHECKING:
    from collections.abc import Callable

    from django.http import HttpRequest, HttpResponse

    View = Callable[..., HttpResponse]


def or_its_history(kind: str, name_of: Callable[..., str]) -> Callable[[View], View]:
    """Have a view show what is kept of its subject while brokers do not answer.

    `name_of` takes the parts of the address, by their names.
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
