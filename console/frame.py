"""Template context of every page: navigation, theme, name server."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from django.conf import settings
from django.utils.functional import SimpleLazyObject
from django.utils.translation import gettext_lazy as _, ngettext, pgettext_lazy

from console.accounts.actions import Action
from console.accounts.rights import rights_on
from console.accounts.roles import acting_role, may_administer
from console.observe.alerts.firing import firing_alerts
from console.observe.history.metrics import BROKER, GROUP, TOPIC
from console.observe.overview.services import known_issues
from console.people.preferences.cookies import THEME_COOKIE
from console.people.preferences.middleware import preferences_on
from console.people.preferences.models import Place, Preferences

if TYPE_CHECKING:
    from django.contrib.auth.models import AnonymousUser, User
    from django.http import HttpRequest
    from django.utils.functional import Promise


NAVIGATION_COOKIE = "trebuchet_navigation"
"""The sections that a person collapsed; the script sets it."""
ALL, ALERTS = "", "alerts"


@dataclass(frozen=True, slots=True)
class NavigationEntry:
    """An entry of the navigation, current on pages of its namespace; `g` then `key` opens it.

    `counts` is the kind of subject whose issues it counts: ALL for any kind, ALERTS for firing
    alerts, None for no count.
    """

    label: Promise | str
    icon: str
    url_name: str
    key: str
    for_staff: bool = False
    permission: str = ""
    counts: str | None = None

    @property
    def namespace(self) -> str:
        return self.url_name.partition(":")[0]


@dataclass(frozen=True, slots=True)
class NavigationSection:
    """Entries that can be collapsed together, unless the section has no label."""

    name: str
    label: Promise | str
    entries: tuple[NavigationEntry, ...]


@dataclass(frozen=True, slots=True)
class Count:
    """How much needs attention behind an entry, in words, and how urgent it is."""

    number: int = 0
    text: str = ""
    state: str = ""


@dataclass(frozen=True, slots=True)
class ShownEntry:
    """An entry with its count."""

    entry: NavigationEntry
    count: Count


@dataclass(frozen=True, slots=True)
class ShownSection:
    """A section as a person sees it; the one of the current page is open."""

    section: NavigationSection
    entries: tuple[ShownEntry, ...]
    is_open: bool

    @property
    def count(self) -> int:
        return sum(each.count.number for each in self.entries)

    @property
    def state(self) -> str:
        states = {each.count.state for each in self.entries}
        return "bad" if "bad" in states else "warn"


# Pages without their own entry, and the entry they belong to.
BELONGS = {
    "family": "browse",
    "masking": "people",
    "sending": "browse",
}
SECTIONS = (
    NavigationSection(
        "",
        "",
        (
            NavigationEntry(_("Overview"), "gauge", "overview:index", "o", counts=ALL),
            NavigationEntry(_("Live"), "radio", "tracing:river", "l"),
            NavigationEntry(_("Alerts"), "bell", "alerts:list", "a", counts=ALERTS),
        ),
    ),
    NavigationSection(
        "messaging",
        _("Messaging"),
        (
            NavigationEntry(_("Messages"), "inbox", "browse:search", "m"),
            NavigationEntry(_("Dead letters"), "mail-x", "dead_letters:list", "d"),
            NavigationEntry(_("Topics"), "layers", "topics:list", "t", counts=TOPIC),
            NavigationEntry(_("Groups"), "users", "groups:list", "g", counts=GROUP),
            NavigationEntry(_("Offsets"), "milestone", "offsets:index", "f"),
            NavigationEntry(_("Producers"), "send", "clients:producers", "w"),
            NavigationEntry(_("Brokers"), "server", "brokers:list", "b", counts=BROKER),
        ),
    ),
    NavigationSection(
        "data",
        pgettext_lazy("navigation", "Data"),
        (
            NavigationEntry(_("Reports"), "chart-column", "reports:list", "r"),
            NavigationEntry(_("Lake"), "database", "lake:index", "k"),
            NavigationEntry("SQL", "terminal", "sql:editor", "q", permission="sql.query_lake"),
        ),
    ),
    NavigationSection(
        "administration",
        _("Administration"),
        (
            NavigationEntry(_("Configuration"), "file-text", "files:index", "c"),
            NavigationEntry(_("People"), "user", "people:list", "p", for_staff=True),
            NavigationEntry(
                _("Access keys"), "key-round", "broker_accounts:list", "y", for_staff=True
            ),
            NavigationEntry(_("Audit"), "scroll-text", "audit:list", "u", for_staff=True),
        ),
    ),
)
NAVIGATION = tuple(entry for section in SECTIONS for entry in section.entries)


def frame(request: HttpRequest) -> dict[str, Any]:
    match = request.resolver_match
    namespace = match.namespace if match else ""
    namespace = BELONGS.get(namespace, namespace)
    user = getattr(request, "user", None)
    staff = user is not None and may_administer(user)
    mine = preferences_on(request)
    return {
        "theme": theme_of(request, mine),
        "density": mine.density,
        "zone": mine.zone,
        "places": SimpleLazyObject(lambda: places_of(request)),
        "address": request.get_full_path(),
        "navigation": [entry for entry in NAVIGATION if staff or may_see(user, entry)],
        "navigation_sections": SimpleLazyObject(lambda: sections_of(request, namespace)),
        "current_namespace": namespace,
        "role": acting_role(user).label if user is not None and user.is_authenticated else "",
        "may_change": user is not None and rights_on(request).may_somewhere(Action.OPERATE),
        "may_administer": staff,
        "name_servers": ";".join(settings.TREBUCHET_NAMESRV),
    }


def sections_of(request: HttpRequest, namespace: str) -> list[ShownSection]:
    """Return the navigation as this person sees it on a page of this namespace."""
    user = getattr(request, "user", None)
    staff = user is not None and may_administer(user)
    collapsed = request.COOKIES.get(NAVIGATION_COOKIE, "").split(".")
    counts = counts_now()
    found = []
    for section in SECTIONS:
        entries = tuple(
            ShownEntry(entry, counts.get(entry.counts, Count()))
            for entry in section.entries
            if staff or may_see(user, entry)
        )
        is_current = any(each.entry.namespace == namespace for each in entries)
        if entries:
            is_open = is_current or section.name not in collapsed
            found.append(ShownSection(section, entries, is_open))
    return found


def counts_now() -> dict[str | None, Count]:
    """Return what needs attention, by kind of subject."""
    issues = known_issues()
    counts: dict[str | None, Count] = {}
    for kind in (ALL, TOPIC, GROUP, BROKER):
        states = [str(each.state) for each in issues.entries if kind in (ALL, each.kind)]
        if states:
            text = ngettext("%(count)s issue", "%(count)s issues", len(states))
            state = "bad" if "bad" in states else "warn"
            counts[kind] = Count(len(states), text % {"count": len(states)}, state)
    alerts = firing_alerts()
    if alerts.notifying:
        text = ngettext("%(count)s alert firing", "%(count)s alerts firing", alerts.notifying)
        counts[ALERTS] = Count(alerts.notifying, text % {"count": alerts.notifying}, alerts.state)
    return counts


def may_see(user: User | AnonymousUser | None, entry: NavigationEntry) -> bool:
    """Whether a person who isn't an administrator has this entry."""
    if entry.for_staff:
        return False
    return not entry.permission or (user is not None and user.has_perm(entry.permission))


def theme_of(request: HttpRequest, mine: Preferences) -> str:
    """Return the theme a person chose, else that of the browser's last person."""
    chosen = mine.theme if mine.pk else request.COOKIES.get(THEME_COOKIE, "")
    return chosen if chosen in Preferences.Theme.values else Preferences.Theme.AUTO


def places_of(request: HttpRequest) -> list[Place]:
    user = getattr(request, "user", None)
    if user is None or not user.is_authenticated:
        return []
    return list(Place.objects.filter(user=user))
