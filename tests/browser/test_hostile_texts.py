"""Producers' and clients' texts are shown as text on every page, whatever they look like."""

from __future__ import annotations

import json
from contextlib import ExitStack
from typing import TYPE_CHECKING
from urllib.parse import quote, urlencode

import pytest

from console.lib.moment import now_ms
from tests.browser.conftest import member
from tests.support.addresses import KEYS, PAGES, path_of
from tests.support.chromium import Requests, sign_in
from tests.support.raw_remoting import SEND_MESSAGE, RawClient, create_topic, send_fields
from tests.support.waiting import until

if TYPE_CHECKING:
    from playwright.sync_api import Browser, ConsoleMessage, Dialog, Page

    from tests.browser.conftest import World

pytestmark = pytest.mark.browser

TOPIC, GROUP = "Hostile", "hostile-readers"
DEAD = f"%DLQ%{GROUP}"
SHOWN_SECONDS = 60
# Each would leave an element <x-probe> behind, set a global, or open a dialog.
TEXTS = (
    "<x-probe>a</x-probe>",
    "<img src=x onerror=window.probed=1><x-probe></x-probe>",
    '"><script>window.probed=1</script><x-probe>',
    "'><svg onload=window.probed=1><x-probe>",
    "</script><script>window.probed=1;document.body.append(document.createElement('x-probe'))</script>",
    "</textarea></title></style><x-probe onclick=window.probed=1>",
    "javascript:window.probed=1//",
    "{{ 7|add:7 }}${window.probed=1}{% debug %}",
    "&lt;x-probe&gt;<!--<x-probe>--><x-probe>",
    "\u2028\u2029\u202e</ScRiPt ><x-probe>",
)
PROBED = """
() => ({
  elements: document.querySelectorAll("x-probe").length,
  global: window.probed ?? null,
  handlers: [...document.querySelectorAll("main *")].filter((each) =>
    [...each.attributes].some((one) => /^on/i.test(one.name))).length,
  links: [...document.querySelectorAll("[href], [src], [action]")].filter((each) =>
    /^\\s*javascript:/i.test(each.getAttribute("href") ?? each.getAttribute("src")
      ?? each.getAttribute("action"))).length,
})
"""
ANSWERS = (200, 404)
"""Some pages are about objects that this topic or group doesn't have."""
CLEAN = {"elements": 0, "global": None, "handlers": 0, "links": 0}


class Watched:
    """Script effects of a page that no text may cause."""

    def __init__(self, page: Page) -> None:
        self.problems: list[str] = []
        page.on("dialog", self._on_dialog)
        page.on("pageerror", lambda error: self.problems.append(f"script error: {error}"))
        page.on("console", self._on_console)

    def _on_dialog(self, dialog: Dialog) -> None:
        self.problems.append("dialog")
        dialog.dismiss()

    def _on_console(self, message: ConsoleMessage) -> None:
        if "Content Security Policy" in message.text:
            self.problems.append(message.text)


def properties_of(text: str, number: int) -> str:
    """Return a message's properties with `text` in every free-text field."""
    table = {"KEYS": f"{text} key-{number}", "TAGS": text, "UNIQ_KEY": text, text: text}
    table |= {"PGROUP": text, "RETRY_TOPIC": TOPIC, "ORIGIN_MESSAGE_ID": text}
    return "".join(f"{name}\x01{value}\x02" for name, value in table.items())


def send_all(port: int) -> None:
    """Send a message and a dead letter with each text, as body, key, tag and property."""
    with RawClient(port) as client:
        for number, each in enumerate(TEXTS):
            body = json.dumps({each: each, "list": [each]}) if number % 2 else each
            for topic, queue_id in ((TOPIC, number % 2), (DEAD, 0)):
                fields = send_fields(
                    topic, queue_id=queue_id, properties=properties_of(each, number)
                )
                fields |= {"bornTimestamp": str(now_ms()), "producerGroup": f"p{number}"}
                client.ask(SEND_MESSAGE, fields, body.encode())


def paths(keys: dict[str, int | str]) -> list[str]:
    """Return every page about the topic and its group, and others that show texts."""
    span = urlencode({"topic": TOPIC, "range": "1h"})
    pages = ["/", "/topics/", f"/topics/t/{TOPIC}/", "/groups/", f"/groups/g/{GROUP}/"]
    pages += ["/producers/", f"/messages/?{span}", f"/messages/?{span}&field=list"]
    pages += [f"/messages/?{urlencode({'topic': TOPIC, 'range': '1h', 'text': 'probe'})}"]
    pages += ["/dead-letters/", f"/dead-letters/g/{GROUP}/", f"/offsets/?group={GROUP}"]
    pages += ["/live/recorded/?ask=errors", f"/offsets/?group={GROUP}&topic={TOPIC}"]
    for number, text in enumerate(TEXTS):
        place = f"broker-a/{number % 2}/{number // 2}/{TOPIC}/"
        pages += [f"/messages/m/{place}", f"/messages/m/{place}?as=tree"]
        pages.append(f"/messages/find/?{urlencode({'by': 'key', 'topic': TOPIC, 'text': text})}")
        pages += [f"/topics/?q={quote(text)}", f"/groups/?q={quote(text)}"]
    every = [path_of(name, query, keys) for name in PAGES for query in PAGES[name]]
    return [*pages, *(each for each in every if each not in pages)]


def test_client_data_is_text_on_each_page_and_over_the_socket(
    world: World, browser: Browser
) -> None:
    appliance = world.appliance
    port = appliance.port
    for topic, queues in ((TOPIC, 2), (DEAD, 1)):
        create_topic(port, topic, queues=queues)
    # Twice, so that each paged list has a message there.
    for _ in range(2):
        send_all(port)
    context = browser.new_context(viewport={"width": 1280, "height": 900}, locale="en-GB")
    context.set_default_timeout(SHOWN_SECONDS * 1_000)
    keys = {**KEYS, **world.keys, "topic": TOPIC, "group": GROUP}
    keys |= {"member": TEXTS[0], "member_group": GROUP}
    problems: dict[str, object] = {}
    shown = 0
    with ExitStack() as stack:
        stack.callback(context.close)
        for text in TEXTS:
            stack.enter_context(member(port, text, GROUP, TOPIC, text))
        page = context.new_page()
        sign_in(page, appliance.url)
        watched, requests = Watched(page), Requests(page)
        for path in paths(keys):
            answer = page.goto(f"{appliance.url}{path}")
            requests.settle()
            found: dict[str, object] = page.evaluate(PROBED)
            shown += "x-probe" in page.locator("body").inner_text()
            is_there = answer is not None and answer.status in ANSWERS
            if not is_there or found != CLEAN or watched.problems:
                problems[path] = (answer and answer.status, found, list(watched.problems))
                watched.problems.clear()

        page.goto(f"{appliance.url}/live/")
        page.wait_for_selector("[data-state=live], [data-live=on], #river-rows", state="attached")

        # The watch begins a moment after the page is loaded.
        def are_shown() -> bool:
            send_all(port)
            page.wait_for_timeout(300)
            return page.locator("#river-rows tr").count() >= len(TEXTS)

        until(
            are_shown,
            "the live page to show them",
            seconds=SHOWN_SECONDS,
        )
        found = page.evaluate(PROBED)
        if found != CLEAN or watched.problems:
            problems["/live/"] = (found, watched.problems)

    assert problems == {}
    # The texts were visible on most of the pages.
    assert shown > len(TEXTS)
