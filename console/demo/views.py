"""The buttons that start and stop the demo traffic."""

from __future__ import annotations

from typing import TYPE_CHECKING

from django.contrib import messages
from django.http import HttpResponseRedirect
from django.shortcuts import redirect
from django.utils.http import url_has_allowed_host_and_scheme

from console.accounts.permissions import administrators_action
from console.demo.services import start_demo, stop_demo

if TYPE_CHECKING:
    from django.http import HttpRequest, HttpResponse


@administrators_action
def start(request: HttpRequest) -> HttpResponse:
    """Start the demo if it isn't running."""
    is_new, text = start_demo(request)
    (messages.success if is_new else messages.info)(request, text)
    return back(request)


@administrators_action
def stop(request: HttpRequest) -> HttpResponse:
    """Stop the demo if it is running."""
    is_ended, text = stop_demo(request)
    (messages.success if is_ended else messages.info)(request, text)
    return back(request)


def back(request: HttpRequest) -> HttpResponse:
    """Redirect to the page with the button, never to another host."""
    wanted = request.POST.get("next", "")
    is_ours = url_has_allowed_host_and_scheme(wanted, {request.get_host()}, request.is_secure())
    # redirect() would treat a text that doesn't look like a path as the name of a view.
    if is_ours and wanted.startswith("/"):
        return HttpResponseRedirect(wanted)
    return redirect("overview:index")
