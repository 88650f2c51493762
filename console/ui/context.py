"""What the frame of every page shows: navigation, theme, name server."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from django.conf import settings
from django.utils.translation import gettext_lazy as _

if TYPE_CHECKING:
    from django.http import HttpRequest
    from django.utils.functional import Promise

THEMES = ("auto", "light", "dark")
THEME_COOKIE = "trebuchet_theme"


@dataclass(frozen=True, slots=True)
class NavigationEntry:
    """A line of the navigation, current on every page of its namespace."""

    label: Promise
    icon: str
    url_name: str
    for_staff: bool = False

    @property
    def namespace(self) -> str:
        return self.url_name.partition(":")[0]


NAVIGATION = (
    NavigationEntry(_("Overview"), "gauge", "overview:index"),
    NavigationEntry(_("Live"), "radio", "tracing:river"),
    NavigationEntry(_("Topics"), "layers", "topics:list"),
    NavigationEntry(_("Groups"), "users", "groups:list"),
    NavigationEntry(_("Offsets"), "milestone", "offsets:index"),
    NavigationEntry(_("Reports"), "chart-column", "reports:list"),
    NavigationEntry(_("Audit"), "scroll-text", "audit:list", for_staff=True),
)


def frame(request: HttpRequest) -> dict[str, Any]:
    theme = request.COOKIES.get(THEME_COOKIE, "auto")
    match = request.resolver_match
    user = getattr(request, "user", None)
    staff = bool(user is not None and user.is_staff)
    return {
        "theme": theme if theme in THEMES else "auto",
        "navigation": [entry for entry in NAVIGATION if staff or not entry.for_staff],
        "current_namespace": match.namespace if match else "",
        "may_change": staff,
        "name_servers": ";".join(settings.TREBUCHET_NAMESRV),
    }
