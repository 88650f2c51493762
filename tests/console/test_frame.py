"""Common parts of all pages: no external or inline resources, vendored files as recorded."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

import pytest
from django.urls import reverse

from console.ui.templatetags import ui

pytestmark = pytest.mark.django_db

CONSOLE = Path(__file__).resolve().parents[2] / "console"
VENDOR = CONSOLE / "static" / "console" / "vendor"
TAG = re.compile(
    r"{%\s*(?:block (?P<block>\w+)|(?P<end>endblock)|url .*? as (?P<address>\w+))\s*%}"
    r"|{{\s*(?P<used>\w+)"
)
ASSET = re.compile(r"""(?:src|href|url\(|@import|action)\s*[=(]?\s*["']?(?:https?:)?//""")


def test_none_of_our_templates_styles_or_scripts_names_another_host() -> None:
    files = [
        path
        for pattern in ("*.html", "*.css", "*.js")
        for path in CONSOLE.rglob(pattern)
        if VENDOR not in path.parents
    ]
    assert len(files) > 20

    wrong = [str(path) for path in files if ASSET.search(path.read_text())]

    assert not wrong


def addresses_of_other_blocks(template: str) -> list[str]:
    """Return the addresses that a template uses outside of the block that defines them."""
    blocks: list[str] = []
    known: dict[str, list[list[str]]] = {}
    used = []
    for tag in TAG.finditer(template):
        if tag["block"]:
            blocks.append(tag["block"])
        elif tag["end"]:
            blocks.pop()
        elif tag["address"]:
            known.setdefault(tag["address"], []).append(list(blocks))
        else:
            used.append((tag["used"], list(blocks)))
    return [
        name
        for name, inside in used
        if name in known and not any(inside[: len(each)] == each for each in known[name])
    ]


def test_every_links_address_is_in_its_own_block() -> None:
    """Outside it's empty, and the link leads to the current page."""
    found = {
        str(path): wrong
        for path in CONSOLE.rglob("*.html")
        if (wrong := addresses_of_other_blocks(path.read_text()))
    }

    assert found == {}
    other = "{% block a %}{% url 'x' as y %}{% endblock %}{% block b %}{{ y }}{% endblock %}"
    assert addresses_of_other_blocks(other) == ["y"]


def test_vendored_files_match_the_lock() -> None:
    lines = [line.split() for line in (VENDOR / "vendor.lock").read_text().splitlines()[1:]]
    listed = {(VENDOR / line[0]).resolve(): line for line in lines}

    for path, (_file, _name, _version, _licence, licence_file, sha256) in listed.items():
        assert hashlib.sha256(path.read_bytes()).hexdigest() == sha256, path.name
        assert (VENDOR / licence_file).is_file()
    present = {
        path.resolve() for path in VENDOR.iterdir() if path.suffix in {".js", ".css", ".woff2"}
    }
    assert present <= set(listed)


def pages(brokers) -> list[str]:
    brokers.add_topic("Orders")
    brokers.add_group("billing", online=True, topic="Orders")
    return [
        reverse("overview:index"),
        reverse("topics:list"),
        reverse("topics:create"),
        reverse("topics:edit", args=["Orders"]),
        reverse("topics:detail", args=["Orders"]),
        reverse("groups:list"),
        reverse("groups:create"),
        reverse("groups:detail", args=["billing"]),
        reverse("offsets:index") + "?group=billing&topic=Orders",
        reverse("audit:list"),
        reverse("accounts:password"),
        reverse("preferences:own"),
        reverse("gallery"),
    ]


def test_no_page_has_inline_script_or_style(actors, brokers) -> None:
    for url in pages(brokers):
        html = actors.admin.get(url).content.decode()

        assert not re.search(r"<script(?![^>]*\bsrc=)", html), url
        assert not re.search(r"\son[a-z]+=|\sstyle=|<style", html), url


def test_the_policy_allows_nothing_inline_and_no_other_origin(actors, brokers) -> None:
    response = actors.admin.get(reverse("overview:index"))
    policy = response["content-security-policy"]

    assert "unsafe" not in policy
    assert "default-src 'self'" in policy
    assert response["x-frame-options"] == "DENY"
    assert response["x-content-type-options"] == "nosniff"


def test_a_read_only_user_sees_pages_without_their_forms(actors, brokers) -> None:
    for url in pages(brokers):
        response = actors.reader.get(url)
        if response.status_code == 403:
            continue
        html = response.content.decode()
        if url == reverse("gallery"):
            continue

        assert "Delete" not in html
        assert reverse("topics:create") not in html
        assert reverse("audit:list") not in html


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("sending:send", "browse:search"),
        ("broker_accounts:list", "broker_accounts:list"),
        ("brokers:name-servers", "brokers:list"),
        ("masking:list", "people:list"),
        ("topics:create", "topics:list"),
    ],
)
def test_a_page_highlights_its_navigation_entry(actors, brokers, name, line) -> None:
    page = actors.admin.get(reverse(name)).text

    current = re.findall(r'href="([^"]+)" data-key="."\s+aria-current="page"', page)
    assert current == [reverse(line)]


def test_the_cookies_theme_is_rendered_and_an_invalid_one_is_not(actors, brokers) -> None:
    actors.reader.cookies["trebuchet_theme"] = "dark"
    assert 'data-theme="dark"' in actors.reader.get("/").content.decode()

    actors.reader.cookies["trebuchet_theme"] = "x onload=y"
    assert 'data-theme="auto"' in actors.reader.get("/").content.decode()


def test_an_address_without_a_listener_is_reported(actors) -> None:
    response = actors.reader.get("/nowhere/")

    assert response.status_code == 404
    assert "no page at this address." in response.content.decode()


def test_static_files_are_for_this_console_only(client) -> None:
    response = client.get("/static/console/app.css")

    assert response.status_code == 200
    assert response["content-type"].startswith("text/css")
    assert "access-control-allow-origin" not in response


def test_probes_answer(client) -> None:
    assert client.get("/healthz").json() == {"status": "ok"}
    assert client.get("/readyz").json() == {"status": "ok"}


def test_an_unknown_value_is_a_dash_with_its_reason() -> None:
    shown = ui.unknown("The broker did not say <so>.")

    assert "\u2013" in shown
    assert "The broker did not say &lt;so&gt;." in shown
    assert ui.count(None) == ui.unknown()


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0 B"), (1023, "1023 B"), (1024, "1.0 KiB"), (1536, "1.5 KiB"), (1 << 40, "1.0 TiB")],
)
def test_bytes_have_their_unit(value, text) -> None:
    assert ui.byte_size(value) == text


@pytest.mark.parametrize(
    ("value", "text"), [(0, "0"), (0.04, "< 0.1"), (3.14, "3.1"), (12345.6, "12\u202f346")]
)
def test_rates_are_shown_short(value, text) -> None:
    assert ui.rate(value) == text


@pytest.mark.parametrize(
    ("seconds", "text"), [(5, "5 s"), (65, "1 min 5 s"), (3700, "1 h 1 min"), (90_000, "1 day 1 h")]
)
def test_spans_show_two_units(seconds, text) -> None:
    assert ui.duration(seconds) == text


def test_an_impossible_calendar_time_is_unknown() -> None:
    assert "an invalid time" in ui.moment(10**18)


def test_a_pages_scripts_have_at_most_150_kb(actors, brokers) -> None:
    for url in pages(brokers):
        html = actors.admin.get(url).content.decode()
        sources = re.findall(r'<script src="([^"]+)"', html)
        sizes = [len(actors.admin.get(source).getvalue()) for source in sources]

        assert len(sizes) > 5
        assert sum(sizes) <= 150_000, url
