"""Short browser names from User-Agent headers."""

from __future__ import annotations

import re

from django.utils.translation import gettext as _

# The order matters: most browsers also name other browsers in their User-Agent.
BROWSERS = (
    (r"Edg(?:e|A|iOS)?/(\d+)", "Edge"),
    (r"OPR/(\d+)", "Opera"),
    (r"SamsungBrowser/(\d+)", "Samsung Internet"),
    (r"(?:Firefox|FxiOS)/(\d+)", "Firefox"),
    (r"(?:Chrome|Chromium|HeadlessChrome|CriOS)/(\d+)", "Chrome"),
    (r"Version/(\d+)[.\d]* (?:Mobile/\w+ )?Safari/", "Safari"),
    (r"curl/(\d+)", "curl"),
)
SYSTEMS = (
    ("iPhone", "iPhone"),
    ("iPad", "iPad"),
    ("Android", "Android"),
    ("CrOS", "ChromeOS"),
    ("Windows", "Windows"),
    ("Mac OS X", "macOS"),
    ("Linux", "Linux"),
)


def in_words(agent: str) -> str:
    """Return a description such as "Firefox 140 on Linux"."""
    browser = ""
    for pattern, name in BROWSERS:
        found = re.search(pattern, agent)
        if found is not None:
            browser = f"{name} {found[1]}"
            break
    system = next((name for mark, name in SYSTEMS if mark in agent), "")
    if browser and system:
        return _("%(browser)s on %(system)s") % {"browser": browser, "system": system}
    return browser or system or _("Unknown browser")
