"""Links from audit log entries to the pages of their subjects."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import urlencode

from django.contrib.auth import get_user_model
from django.urls import NoReverseMatch, reverse

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from console.people.audit.models import Entry

# These pages have the subject in their path; other kinds share one page.
BY_NAME = {"topic": "topics:detail", "group": "groups:detail"}
LISTS = {
    "alert": "alerts:list",
    "alert-channel": "alerts:channels",
    "alert-rule": "alerts:rules",
    "alert-window": "alerts:windows",
    "broker-account": "broker_accounts:list",
    "broker-white": "broker_accounts:list",
    "dead-letter": "dead_letters:list",
    "mark": "marks:list",
    "message": "browse:search",
    "mark-token": "marks:list",
    "name-server": "brokers:name-servers",
    "schedule": "reports:list",
}
GONE = ("delete", "remove")


def people_among(entries: Iterable[Entry]) -> dict[str, int]:
    """Return the primary keys of the accounts that entries are about, by name."""
    names = {each.subject for each in entries if each.action.startswith("account.")}
    accounts = get_user_model().objects.filter(username__in=names)
    return dict(accounts.values_list("username", "pk"))


def object_address(entry: Entry, people: Mapping[str, int]) -> str:
    """Return the page of an entry's subject, or "" if it has no page."""
    kind, _dot, verb = entry.action.partition(".")
    if verb in GONE:
        return ""
    if kind == "account":
        pk = people.get(entry.subject)
        return "" if pk is None else reverse("people:detail", args=[pk])
    if kind == "offset":
        group, separator, topic = entry.subject.partition(" · ")
        query = urlencode({"group": group, "topic": topic})
        return f"{reverse('offsets:index')}?{query}" if separator else ""
    if kind == "config":
        broker_name, separator, file = entry.subject.partition(" · ")
        return reverse("files:show", args=[broker_name, file]) if separator else ""
    if kind == "report" and verb == "cancel":
        number = entry.subject.rpartition(" ")[2]
        return reverse("reports:run", args=[int(number)]) if number.isdecimal() else ""
    if kind == "client":
        return f"{reverse('clients:producers')}?{urlencode({'q': entry.subject})}"
    if kind in BY_NAME:
        try:
            return reverse(BY_NAME[kind], args=[entry.subject])
        except NoReverseMatch:
            return ""
    return reverse(LISTS[kind]) if kind in LISTS else ""
