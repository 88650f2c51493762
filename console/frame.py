"""Template context of every page: navigation, theme, name server."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from django.conf import settings
from django.utils.functional import SimpleLazyObject
from django.utils.translation import gettext_lazy as _

from console.accounts.actions import Action
from console.accounts.rights import rights_on
from console.accounts.roles import acting_role, may_administer
from console.people.preferences.cookies import THEME_COOKIE
from console.people.preferences.middleware import preferences_on
from console.people.preferences.models import Place, Preferences

if TYPE_CHECKING:
    from django.contrib.auth.models import AnonymousUser, User
    from django.http import HttpRequest
    from django.utils.functional import Promise


@dataclass(frozen=True, slots=True)
class NavigationEntry:
    """An entry of the navigation, current on pages of its namespace; `g` then `key` opens it."""

    label: Promise | str
    icon: str
    url_name: str
    key: str
    for_staff: bool = False
    permission: str = ""

    @property
    def namespace(self) -> str:
        return self.url_name.partition(":")[0]


# Pages without their own entry, and the entry they belong to.
BELONGS = {
    "broker_accounts": "people",
    "brokers": "overview",
    "family": "browse",
    "masking": "people",
    "sending": "browse",
}
NAVIGATION = (
    NavigationEntry(_("Overview"), "gauge", "overview:index", "o"),
    NavigationEntry(_("Live"), "radio", "tracing:river", "l"),
    NavigationEntry(_("Alerts"), "bell", "alerts:list", "a"),
    NavigationEntry(_("Topics"), "layers", "topics:list", "t"),
    NavigationEntry(_("Groups"), "users", "groups:list", "g"),
    NavigationEntry(_("Producers"), "send", "clients:producers", "w"),
    NavigationEntry(_("Messages"), "inbox", "browse:search", "m"),
    NavigationEntry(_("Dead letters"), "mail-x", "dead_letters:list", "d"),
    NavigationEntry(_("Offsets"), "milestone", "offsets:index", "f"),
    NavigationEntry(_("Reports"), "chart-column", "reports:list", "r"),
    NavigationEntry(_("Lake"), "database", "lake:index", "k"),
    NavigationEntry("SQL", "terminal", "sql:editor", "q", permission="sql.query_lake"),
    NavigationEntry(_("Configurations"), "file-text", "files:index", "c"),
    NavigationEntry(_("People"), "user", "people:list", "p", for_staff=True),
    NavigationEntry(_("Audit"), "scroll-text", "audit:list", "u", for_staff=True),
)


def frame(request: HttpRequest) -> dict[str, Any]:
    match = request.resolver_match
    namespace = match.namespace if match else ""
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
        "current_namespace": BELONGS.get(namespace, namespace),
        "role": acting_role(user).label if user is not None and user.is_authenticated else "",
        "may_change": user is not None and rights_on(request).may_somewhere(Action.OPERATE),
        "may_administer": staff,
        "name_servers": ";".join(settings.TREBUCHET_NAMESRV),
    }


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
