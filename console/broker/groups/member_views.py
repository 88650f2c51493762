"""Pages about a group's consumers: their subscriptions and status."""

from __future__ import annotations

from typing import TYPE_CHECKING

from django.shortcuts import render
from django.utils.translation import gettext as _

from console.accounts.actions import Action
from console.accounts.permissions import page, page_for
from console.broker.groups.members import MEMBERS_QUERIED_MAX, subscriptions_of
from console.gateway.access import gateway
from console.lib.missing import MissingError
from console.lib.moment import now_ms

if TYPE_CHECKING:
    from django.http import HttpRequest, HttpResponse

    from console.gateway.answers import Member


@page
def subscriptions(request: HttpRequest, group: str) -> HttpResponse:
    """Show the part of a group's page with the subscriptions of its consumers."""
    connections = gateway().groups.connections(group)
    asked = connections.members[:MEMBERS_QUERIED_MAX]
    infos = gateway().groups.running(group, asked) if asked else {}
    context = {
        "group_name": group,
        "connections": connections,
        "found": subscriptions_of(connections, infos),
        "read_at_ms": now_ms(),
    }
    return render(request, "groups/_consumer_subscriptions.html", context)


def get_member(group: str, client_id: str) -> Member:
    """Return a connected consumer of a group, or the 404 page."""
    members = gateway().groups.connections(group).members
    found = next((each for each in members if each.client_id == client_id), None)
    if found is None:
        raise MissingError(
            _("Group %(group)s has no consumer %(client)s right now.")
            % {"group": group, "client": client_id or "?"}
        )
    return found


@page_for(Action.MEMBER, "group")
def member(request: HttpRequest, group: str) -> HttpResponse:
    """Show a consumer's own status; with `threads=on`, also its thread dump."""
    client_id = request.GET.get("client", "")
    found = get_member(group, client_id)
    with_threads = request.GET.get("threads") == "on"
    info = gateway().groups.running(group, [found], with_threads=with_threads)[client_id]
    context = {
        "group": group,
        "member": found,
        "info": None if isinstance(info, Exception) else info,
        "problem": info if isinstance(info, Exception) else None,
        "with_threads": with_threads,
        "read_at_ms": now_ms(),
    }
    return render(request, "groups/member.html", context)
