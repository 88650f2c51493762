"""The buttons that start and stop the demo traffic."""

from __future__ import annotations

from typing import TYPE_CHECKING

from django.contrib import messages
from django.http import HttpResponseRedirect
from django.shortcuts import redirect
from django.utils.http import url_has_allowed_host_and_scheme
from django.utils.translation import gettext as _

from console.accounts.permissions import administrators_action
from console.audit.record import change
from console.demo.process import DEMO_SECONDS, demo_process

if TYPE_CHECKING:
    from django.http import HttpRequest, HttpResponse


@administrators_action
def start(request: HttpRequest) -> HttpResponse:
    """Start the demo, unless it runs."""
    minutes = DEMO_SECONDS // 60
    with change(request, "demo.start", ""):
        started = demo_process.start()
    if started:
        messages.success(
            request,
            _("Demo traffic is starting; it ends by itself in %(minutes)s minutes.")
            % {"minutes": minutes},
        )
    else:
        messages.info(request, _("Demo traffic is already running."))
    return back(request)


@administrators_action
def stop(request: HttpRequest) -> HttpResponse:
    """Stop the demo, if it runs."""
    with change(request, "demo.stop", ""):
        stopped = demo_process.stop()
    if stopped:
        messages.success(request, _("Demo traffic has stopped; its messages stay in the log."))
    else:
        messages.info(request, _("Demo traffic was not running."))
    return back(request)


def back(request: HttpRequest) -> HttpResponse:
    """Return to the page the button stands on, never to another host."""
    wanted = request.POST.get("next", "")
    is_ours = url_has_allowed_host_and_scheme(wanted, {request.get_host()}, request.is_secure())
    # redirect() would take what does not look like a path for the name of a page.
    if is_ours and wanted.startswith("/"):
        return HttpResponseRedirect(wanted)
    return redirect("overview:index")
