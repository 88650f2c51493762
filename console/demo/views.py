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
    is_new, said = started(request)
    (messages.success if is_new else messages.info)(request, said)
    return back(request)


def started(request: HttpRequest) -> tuple[bool, str]:
    """Start the demo; return whether it was not running, and what was done."""
    minutes = DEMO_SECONDS // 60
    with change(request, "demo.start", ""):
        is_new = demo_process.start()
    if is_new:
        said = _("Demo traffic is starting; it ends by itself in %(minutes)s minutes.")
        return True, said % {"minutes": minutes}
    return False, _("Demo traffic is already running.")


@administrators_action
def stop(request: HttpRequest) -> HttpResponse:
    """Stop the demo, if it runs."""
    is_ended, said = stopped(request)
    (messages.success if is_ended else messages.info)(request, said)
    return back(request)


def stopped(request: HttpRequest) -> tuple[bool, str]:
    """Stop the demo; return whether it was running, and what was done."""
    with change(request, "demo.stop", ""):
        is_ended = demo_process.stop()
    if is_ended:
        return True, _("Demo traffic has stopped; its messages stay in the log.")
    return False, _("Demo traffic was not running.")


def back(request: HttpRequest) -> HttpResponse:
    """Return to the page the button stands on, never to another host."""
    wanted = request.POST.get("next", "")
    is_ours = url_has_allowed_host_and_scheme(wanted, {request.get_host()}, request.is_secure())
    # redirect() would take what does not look like a path for the name of a page.
    if is_ours and wanted.startswith("/"):
        return HttpResponseRedirect(wanted)
    return redirect("overview:index")
