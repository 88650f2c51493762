"""Chinese is complete: each sentence of the catalogues, and each page."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from typing import TYPE_CHECKING

import pytest
from django.urls import reverse

from console.lib.moment import now_ms
from tests.console.test_chinese import ENTRIES
from tests.support.addresses import PAGES, every_address
from tests.support.console_objects import make

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.django_db

# Two adjacent English words, or a single one used as a label.
ENGLISH = re.compile(r"[A-Za-z]{2,}(?:,? [A-Za-z]{2,})+|^[A-Z][a-z]{2,}$")
SILENT = {"code", "pre", "script", "style", "textarea", "template", "kbd", "svg", "time"}
"""These contain data, or text for programs."""
READ_ALOUD = ("title", "aria-label", "placeholder", "alt", "data-busy", "data-label")
NAMES = {
    *("Trebuchet", "English", "Slack", "Microsoft Teams", "Topic", "Topics", "Broker", "Tag"),
    *("Key", "Ctrl", "Enter", "Esc", "Space", "Parquet", "Webhook", "Base64", "SQL", "Group"),
    *("Offset", "JSON Schema", "JSON lines", "Java", "Python", "Delta", "Google Authenticator"),
    *("offset id", "Broker ID", "Apache RocketMQ"),
}
"""Names, which are the same in both languages."""
DATA = {
    *("Orders", "order-service broker", "The shop's own topics", "late orders"),
    # Created by a migration, without a language.
    "Traffic of the last 24 hours",
}
"""Names chosen by users."""
ZONE = re.compile(r"^[A-Z][A-Za-z]+/[\w /-]+$")
FOR_AUTHORS = {"gallery"}
"""Pages for page authors."""


class Texts(HTMLParser):
    """Collects the visible text of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []
        self._inside: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        is_data = tag in SILENT or "mono" in (given.get("class") or "").split()
        is_data = is_data or given.get("lang") == "en"
        if is_data or tag in self._inside[-1:]:
            self._inside.append(tag)
        elif not self._inside:
            self.found += [str(given[name]) for name in READ_ALOUD if given.get(name)]

    def handle_endtag(self, tag: str) -> None:
        if self._inside and tag == self._inside[-1]:
            self._inside.pop()

    def handle_data(self, data: str) -> None:
        if not self._inside and data.strip():
            self.found.append(" ".join(data.split()))


def english_of(html: str) -> list[str]:
    """Return the English texts of a page."""
    texts = Texts()
    texts.feed(html.partition("<body")[2])
    return [each for each in texts.found if ENGLISH.search(each) and not is_name(each)]


def is_name(text: str) -> bool:
    rest = "" if ZONE.match(text) else text
    for name in sorted(NAMES | DATA, key=len, reverse=True):
        rest = rest.replace(name, "")
    return not ENGLISH.search(rest.strip())


def test_each_sentence_is_translated_to_chinese() -> None:
    missing = [each.msgid for each in ENTRIES if not each.translated()]

    assert missing == [], "translate them in console/locale/zh_Hans (docs/translating.md)"


@pytest.fixture
def world(actors, brokers, collector) -> dict[str, object]:
    """One of every object on the pages; return the parameters of their addresses."""
    brokers.add_topic("Orders")
    offset = brokers.put_message("Orders", 1, b'{"order": 1}', now_ms(), TAGS="paid", KEYS="o-1")
    brokers.add_group("billing", online=True, topic="Orders")
    brokers.offsets["billing", "Orders", 1] = 0
    brokers.give_up("billing", "Orders", now_ms(), tag="paid")
    brokers.kv_entries["ORDER_TOPIC_CONFIG", "transactionCheckMax"] = "broker-a:4"
    return {
        "topic": "Orders",
        "group": "billing",
        "broker_name": "broker-a",
        "broker_id": 0,
        "report": "traffic",
        "run_id": 1,
        "key": "transactionCheckMax",
        "offset": offset,
        "file": "topics.json",
        "queue_id": 1,
        "schedule_id": 1,
        "namespace": "ORDER_TOPIC_CONFIG",
        "member": "billing@1",
        **make(),
    }


def addresses(keys: dict[str, object]) -> Iterator[tuple[str, str]]:
    parameters = dict(every_address())
    for name, queries in PAGES.items():
        part, _colon, page = name.partition(":")
        kind = page.partition("-")[0]
        own = keys.get(kind, keys.get(part.removesuffix("s")))
        own = own if isinstance(own, int) else 1
        values = {each: own if each == "pk" else keys.get(each, 1) for each in parameters[name]}
        for query in queries:
            yield name, reverse(name, kwargs=values) + query.format_map(keys)


def test_no_page_shows_an_english_sentence(actors, world) -> None:
    """One test for all pages, because the world is created once."""
    seen, wrong = 0, {}
    for name, address in addresses(world):
        answer = actors.admin.get(address, headers={"accept-language": "zh-CN"})
        seen += answer.status_code == 200
        html = answer.content.decode()
        assert '<html lang="zh-hans"' in html, address
        if name not in FOR_AUTHORS and (found := english_of(html)):
            wrong[address] = found

    report = "\n".join(f"{address}: {each}" for address, found in wrong.items() for each in found)
    assert report == "", f"English in Chinese pages:\n{report}"
    assert seen > 0.9 * len(PAGES)


def test_strangers_pages_show_no_english_sentence(actors, world) -> None:
    for address in (reverse("accounts:sign-in"), reverse("accounts:join", args=[world["join"]])):
        html = actors.stranger.get(address, headers={"accept-language": "zh"}).content.decode()

        assert english_of(html) == []
