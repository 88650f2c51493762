"""The buttons that start, stop the demo traffic."""

from __future__ import annotations

from typing import TYPE_CHECKING

from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.shortcuts import redirect
from django.utils.http import url_has_allowed_host_and_scheme
from django.utils.translation import gettext as _
from django.views.decorators.http import require_POST

from console.demo.process import DEMO_SECONDS, demo_process

if TYPE_CHECKING:
    from django.http import HttpRequest, HttpResponse


@require_POST
def start(request: HttpRequest) -> HttpResponse:
    """Start the demo, unless it runs."""
    require_staff(request)
    minutes = DEMO_SECONDS // 60
    if demo_process.start():
        messages.success(
            request,
            _("Demo traffic starts; it ends by itself in %(minutes)s minutes.")
            % {"minutes": minutes},
        )
    else:
        messages.info(request, _("Demo traffic runs already."))
    return back(request)


@require_POST
def stop(request: HttpRequest) -> HttpResponse:
    """Stop the demo, if it runs."""
    require_staff(request)
    if demo_process.stop():
        messages.success(request, _("Demo traffic has stopped; its messages stay in the log."))
    else:
        messages.info(request, _("Demo traffic was not running."))
    return back(request)


def require_staff(request: HttpRequest) -> None:
    """Refuse readers: the demo makes topics and sends messages."""
    if not request.user.is_staff:
        raise PermissionDenied


def back(request: HttpRequest) -> HttpResponse:
    """Return to the page the button stands on, never to another host."""
    wanted = request.POST.get("next", "")
    if url_has_allowed_host_and_scheme(wanted, {request.get_host()}, request.is_secure()):
        return redirect(wanted)
    return redirect("overview:index")
