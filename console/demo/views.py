"""The buttons that start and stop the demo traffic."""

from __future__ import annotations

from typing import TYPE_CHECKING

from django.contrib import messages
from django.http import HttpResponseRedirect
from django.shortcuts import redirect
from django.utils.http import url_has_allowed_host_and_scheme
from django.utils.translation import gettext as _

from console.accounts.permissions import administrators_action
from console.demo.process import DEMO_SECONDS, demo_process
from console.people.audit.record import change

if TYPE_CHECKING:
    from django.http import HttpRequest, HttpResponse


@administrators_action
def start(request: HttpRequest) -> HttpResponse:
    """Start the demo if it isn't running."""
    is_new, text = start_demo(request)
    (messages.success if is_new else messages.info)(request, text)
    return back(request)


def start_demo(request: HttpRequest) -> tuple[bool, str]:
    """Start the demo; return whether it was stopped before, and a sentence for the user."""
    minutes = DEMO_SECONDS // 60
    with change(request, "demo.start", ""):
        is_new = demo_process.start()
    if is_new:
        text = _("Demo traffic is starting. It stops automatically after %(minutes)s minutes.")
        return True, text % {"minutes": minutes}
    return False, _("Demo traffic is already running.")


@administrators_action
def stop(request: HttpRequest) -> HttpResponse:
    """Stop the demo if it is running."""
    is_ended, text = stop_demo(request)
    (messages.success if is_ended else messages.info)(request, text)
    return back(request)


def stop_demo(request: HttpRequest) -> tuple[bool, str]:
    """Stop the demo; return whether it was running, and a sentence for the user."""
    with change(request, "demo.stop", ""):
        is_ended = demo_process.stop()
    if is_ended:
        return True, _("Demo traffic stopped. Its messages stay in the log.")
    return False, _("Demo traffic wasn't running.")


def back(request: HttpRequest) -> HttpResponse:
    """Redirect to the page with the button, never to another host."""
    wanted = request.POST.get("next", "")
    is_ours = url_has_allowed_host_and_scheme(wanted, {request.get_host()}, request.is_secure())
    # redirect() would treat a text that doesn't look like a path as the name of a view.
    if is_ours and wanted.startswith("/"):
        return HttpResponseRedirect(wanted)
    return redirect("overview:index")
