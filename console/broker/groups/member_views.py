"""Pages about a group's consumers: their subscriptions and status."""

from __future__ import annotations

from typing import TYPE_CHECKING

from django.shortcuts import render

from console.accounts.actions import Action
from console.accounts.permissions import page, page_for
from console.broker.groups.services import compare_subscriptions, get_member, member_status
from console.lib.moment import now_ms

if TYPE_CHECKING:
    from django.http import HttpRequest, HttpResponse


@page
def subscriptions(request: HttpRequest, group: str) -> HttpResponse:
    """Show the part of a group's page with the subscriptions of its consumers."""
    connections, found = compare_subscriptions(group)
    context = {
        "group_name": group,
        "connections": connections,
        "found": found,
        "read_at_ms": now_ms(),
    }
    return render(request, "groups/_consumer_subscriptions.html", context)


@page_for(Action.MEMBER, "group")
def member(request: HttpRequest, group: str) -> HttpResponse:
    """Show a consumer's own status; with `threads=on`, also its thread dump."""
    client_id = request.GET.get("client", "")
    found = get_member(group, client_id)
    with_threads = request.GET.get("threads") == "on"
    info = member_status(group, found, with_threads=with_threads)
    context = {
        "group": group,
        "member": found,
        "info": None if isinstance(info, Exception) else info,
        "problem": info if isinstance(info, Exception) else None,
        "with_threads": with_threads,
        "read_at_ms": now_ms(),
    }
    return render(request, "groups/member.html", context)
