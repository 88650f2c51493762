"""The navigation: sections that collapse, and counts of what needs attention."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest
from django.urls import reverse

from console.frame import NAVIGATION_COOKIE, SECTIONS
from console.observe.overview.services import shared_summary
from tests.console.test_issues import NO_CONSUMER, judge, listed

if TYPE_CHECKING:
    from django.test import Client

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("collector")]

TOPICS = reverse("topics:list")


def navigation(client: Client, address: str = TOPICS) -> str:
    html = client.get(address).text
    return html.partition('<nav class="navigation"')[2].partition('id="places"')[0]


def sections(html: str) -> dict[str, bool]:
    """Return the sections by name, and whether each is open."""
    found = re.findall(r'<details [^>]*data-section="(\w+)"( open)?>', html)
    return {name: bool(is_open) for name, is_open in found}


def labels(html: str) -> list[str]:
    return re.findall(r"</svg><span>([^<]+)</span>", html)


def count_of(html: str, namespace: str) -> str:
    found = re.search(rf'id="count-{namespace}"[^>]*>(?:<span aria-hidden="true">(\d+))?', html)
    assert found is not None
    return found[1] or ""


def test_pages_are_grouped_by_what_people_do_there(brokers, actors) -> None:
    html = navigation(actors.admin)

    assert labels(html) == [
        *("Overview", "Live", "Alerts"),
        *("Messaging", "Messages", "Dead letters", "Topics", "Groups", "Offsets", "Producers"),
        "Brokers",
        *("Data", "Reports", "Lake", "SQL"),
        *("Administration", "Configuration", "People", "Access keys", "Audit"),
    ]
    assert sections(html) == {"messaging": True, "data": True, "administration": True}


def test_a_reader_has_only_pages_that_open(brokers, actors) -> None:
    html = navigation(actors.reader)

    links = re.findall(r'class="navigation__link" href="([^"]+)"', html)
    assert {actors.reader.get(each).status_code for each in links} == {200}
    assert "Access keys" not in html


def test_what_was_collapsed_stays_collapsed_except_around_the_page(brokers, actors) -> None:
    actors.admin.cookies[NAVIGATION_COOKIE] = "messaging.administration.nonsense"

    assert sections(navigation(actors.admin, reverse("lake:index"))) == {
        "messaging": False,
        "data": True,
        "administration": False,
    }
    assert sections(navigation(actors.admin))["messaging"]


def test_entries_count_the_issues_of_the_overview(brokers, actors) -> None:
    brokers.add_topic("Orders")
    judge(NO_CONSUMER)

    html = navigation(actors.reader)

    assert count_of(html, "overview") == count_of(html, "groups") == "1"
    assert count_of(html, "topics") == count_of(html, "brokers") == count_of(html, "alerts") == ""
    assert html.count("1 issue") >= 2


@pytest.mark.parametrize("name", ["overview:index", "overview:summary"])
def test_the_count_of_the_overview_is_that_of_its_list(name, brokers, actors) -> None:
    """A bad reading counts as an issue, and appears with the next refresh."""
    brokers.add_topic("Orders")
    brokers.put("Orders", 0, 1, 2, 3)
    brokers.add_group("billing")
    brokers.offsets["billing", "Orders", 0] = 1
    judge()

    html = actors.reader.get(reverse(name)).text

    assert count_of(html, "overview") == str(len(listed(html))) == "1"
    assert count_of(html, "groups") == "1"
    # Other pages have the same count, without asking a broker.
    assert count_of(navigation(actors.reader), "overview") == "1"


def test_a_collapsed_section_counts_what_it_hides(brokers, actors) -> None:
    judge(NO_CONSUMER)
    actors.reader.cookies[NAVIGATION_COOKIE] = "messaging"

    html = navigation(actors.reader, reverse("lake:index"))

    head = html.partition('data-section="messaging"')[2].partition("</summary>")[0]
    assert re.search(r'data-state="warn" aria-hidden="true">1</span>', head)


def test_keys_are_different() -> None:
    keys = [entry.key for section in SECTIONS for entry in section.entries]

    assert len(set(keys)) == len(keys)


def test_every_broker_is_listed(brokers, actors) -> None:
    shared_summary.forget()

    html = actors.reader.get(reverse("brokers:list")).text

    assert "<h1>Brokers</h1>" in html
    assert reverse("brokers:detail", args=["broker-a", 0]) in html
