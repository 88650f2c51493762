"""An operator's changes on the pages, as Java clients of 4.9.7 see them: accounts, files, topics.

The stories share one appliance, with access control, and check the pages on their way.
"""

from __future__ import annotations

import json
import re
import subprocess
from typing import TYPE_CHECKING

import pytest
import yaml
from playwright.sync_api import expect

from tests.browser.page_checks import problems_of
from tests.support.appliance import Appliance
from tests.support.chromium import sign_in
from tests.support.live_group import SECONDS, Follower
from tests.support.waiting import until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from playwright.sync_api import Browser, Page

    from tests.support.java_clients import JavaClients

pytestmark = [pytest.mark.browser, pytest.mark.interop]

ADMINISTRATOR = ("administrator", "a secret of the tests")
CLIENT = ("clients-of-tests", "another secret of the tests")
ACCOUNTS = {
    "accounts": [
        {"accessKey": ADMINISTRATOR[0], "secretKey": ADMINISTRATOR[1], "admin": True},
        {
            "accessKey": CLIENT[0],
            "secretKey": CLIENT[1],
            "defaultTopicPerm": "PUB|SUB",
            "defaultGroupPerm": "SUB",
        },
    ]
}
SENT = "SEND_OK"
QUEUES, KEPT_QUEUES = 4, 1
UNREAD = 3 * QUEUES
UNREAD_GONE = 3 * (QUEUES - KEPT_QUEUES)
"""A producer sends to its queues in turn."""
SHOP = "shop-account"
PERSON, PERSONS_PASSWORD = "nina", "a password of nina's own"
FOLLOWED_MS = 90_000


class Producer:
    """A running Java producer that sends messages on demand. A context manager."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def __enter__(self) -> Producer:
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(SECONDS)
        self._process.stdout.close()

    def send(self, topic: str, key: str) -> str:
        """Send a message; return its status, or the code of its rejection."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{topic} {key}\n")
        self._process.stdin.flush()
        word, outcome = self._process.stdout.readline().split()
        assert word == "sent"
        return outcome


@pytest.fixture(scope="module")
def guarded(chromium: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Appliance]:
    """Run an appliance whose broker has two accounts: the console's, and one of clients."""
    directory = tmp_path_factory.mktemp("guarded")
    accounts = directory / "plain_acl.yml"
    accounts.write_text(yaml.safe_dump(ACCOUNTS))
    accounts.chmod(0o600)
    started = Appliance(
        directory,
        TREBUCHET_BROKER_ACCESS_KEY=ADMINISTRATOR[0],
        TREBUCHET_BROKER_SECRET_KEY=ADMINISTRATOR[1],
    )
    started.set_keys(aclEnable="true", aclFile=accounts)
    started.start()
    yield started
    started.stop()


@pytest.fixture(scope="module")
def session(browser: Browser, guarded: Appliance) -> dict[str, object]:
    """The administrator's session, signed in once for all stories."""
    context = browser.new_context(viewport={"width": 1280, "height": 900}, locale="en-GB")
    sign_in(context.new_page(), guarded.url)
    state = context.storage_state()
    context.close()
    return dict(state)


@pytest.fixture
def page(browser: Browser, session: dict[str, object]) -> Iterator[Page]:
    context = browser.new_context(
        viewport={"width": 1280, "height": 900},
        locale="en-GB",
        storage_state=session,  # type: ignore[arg-type]
    )
    context.set_default_timeout(60_000)
    yield context.new_page()
    context.close()


def producer(
    java: JavaClients, guarded: Appliance, group: str, account: tuple[str, str]
) -> Producer:
    start = ("AskedProducer", guarded.namesrv, group, *account)
    return Producer(java.start(*start, stdin=subprocess.PIPE))


def follower(java: JavaClients, guarded: Appliance, topic: str, group: str) -> Follower:
    start = ("LiveConsumer", guarded.namesrv, topic, group, *CLIENT)
    return Follower(java.start(*start, stdin=subprocess.PIPE))


def sent(sending: Producer, topic: str, key: str) -> None:
    """Send a message, retrying because a new or reopened topic takes time to work."""
    until(lambda: sending.send(topic, key) == SENT, f"{key} to be sent", seconds=SECONDS)


def received(followed: Follower, *keys: str) -> None:
    until(lambda: set(followed.keys) >= set(keys), f"{keys} at the consumer", seconds=SECONDS)


def press(page: Page, name: str) -> None:
    """Press a button, and wait for the resulting page."""
    with page.expect_navigation():
        page.get_by_role("button", name=name, exact=True).click()


def review(page: Page) -> None:
    press(page, "Review changes")
    expect(page.get_by_text("Nothing changes until you apply it.").first).to_be_visible()


def apply(page: Page) -> None:
    """Apply a plan, and wait for the page that confirms it."""
    press(page, "Apply")
    expect(page.locator(".toast, #secret-key").first).to_be_visible()
    expect(page.get_by_role("button", name="Apply", exact=True)).to_have_count(0)


def undo(page: Page) -> None:
    press(page, "Undo")
    expect(page.locator(".toast[data-state=ok]").first).to_be_visible()


def create_topic(page: Page, url: str, topic: str, queues: int) -> None:
    page.goto(f"{url}/topics/new/")
    page.get_by_label("Name", exact=True).fill(topic)
    page.get_by_label("Write queues", exact=True).fill(str(queues))
    page.get_by_label("Read queues", exact=True).fill(str(queues))
    review(page)
    apply(page)


def edit_file(page: Page, url: str, file: str, entry: str, **values: object) -> None:
    """Open a file's editor and set values of an entry, without continuing to the plan."""
    page.goto(f"{url}/files/b/broker-a/{file}/edit/")
    text = page.locator("#file-text")
    whole = json.loads(text.input_value())
    next(table for table in whole.values() if entry in table)[entry] |= values
    text.fill(json.dumps(whole, indent=2))


def test_an_account_created_on_the_page_sends_until_its_permission_is_revoked(
    page: Page, guarded: Appliance, browser: Browser, java_4: JavaClients
) -> None:
    problems: list[str] = []
    url = guarded.url
    create_topic(page, url, "ShopOrders", 1)
    create_topic(page, url, "Payroll", 1)

    # The account is created, and its secret is shown once.
    page.goto(f"{url}/brokers/accounts/")
    page.get_by_role("link", name="New account").click()
    page.get_by_label("Access key", exact=True).fill(SHOP)
    page.get_by_label("Topics", exact=True).fill("ShopOrders=PUB")
    problems += problems_of(page, "story-account-form")
    review(page)
    apply(page)
    secret = page.locator("#secret-key").inner_text()
    problems += problems_of(page, "story-account-secret")
    page.get_by_role("link", name="Done").click()
    expect(page.locator("tr", has_text=SHOP)).to_contain_text("ShopOrders=PUB")
    assert secret not in page.content()

    with producer(java_4, guarded, "shop-producer", (SHOP, secret)) as shop:
        sent(shop, "ShopOrders", "allowed")
        assert shop.send("Payroll", "curious") != SENT

        # The permission is revoked: the connected client is rejected at once, until the undo.
        page.goto(f"{url}/brokers/accounts/a/{SHOP}/edit/")
        page.get_by_label("Topics", exact=True).fill("ShopOrders=DENY")
        review(page)
        problems += problems_of(page, "story-account-plan")
        apply(page)
        refused = shop.send("ShopOrders", "refused")
        assert refused not in (SENT, "-1")
        undo_button = page.get_by_role("button", name="Undo", exact=True)
        expect(undo_button).to_be_visible()
        page.goto(
            f"{url}/brokers/accounts/may/?access_key={SHOP}&address=127.0.0.1&action=send&name=ShopOrders"
        )
        expect(page.locator("main table")).to_contain_text("denied")
        problems += problems_of(page, "story-account-may")
        page.goto(f"{url}/audit/")
        page.locator("tr", has_text=SHOP).get_by_role("link", name="Undo").first.click()
        apply_undo(page)
        assert shop.send("ShopOrders", "again") == SENT

        # A new secret locks out clients with the old one.
        page.goto(f"{url}/brokers/accounts/a/{SHOP}/secret/")
        problems += problems_of(page, "story-account-renew")
        page.locator("#danger-name").fill(SHOP)
        with page.expect_navigation():
            page.locator("form.danger button[type=submit]").click()
        assert page.locator("#secret-key").inner_text() != secret
        assert shop.send("ShopOrders", "with the old secret".replace(" ", "-")) != SENT

    for path, name in ((f"a/{SHOP}/delete/", "delete"), ("white/", "white"), ("", "list")):
        page.goto(f"{url}/brokers/accounts/{path}")
        problems += problems_of(page, f"story-account-{name}")
    assert problems == []


def apply_undo(page: Page) -> None:
    button = page.get_by_role("button", name=re.compile("^(Apply|Undo)$")).last
    with page.expect_navigation():
        button.click()


def test_a_user_with_a_role_by_pattern_sees_only_these_topics_messages(
    page: Page, guarded: Appliance, browser: Browser, java_4: JavaClients
) -> None:
    url, problems = guarded.url, []
    for topic in ("TeamOrders", "Wages"):
        create_topic(page, url, topic, 1)
    with producer(java_4, guarded, "team-producer", CLIENT) as sending:
        for topic in ("TeamOrders", "Wages"):
            sent(sending, topic, f"key-of-{topic}")

    page.goto(f"{url}/people/roles/new/")
    page.get_by_label("Name", exact=True).fill("Order team")
    for action in ("message.see", "topic.change"):
        page.locator(f"input[value='{action}']").check()
    page.get_by_label("Topics", exact=True).fill("Team*")
    problems += problems_of(page, "story-role-form")
    press(page, "Save")
    page.goto(f"{url}/people/invite/")
    page.get_by_label("Name", exact=True).fill(PERSON)
    page.get_by_label("Role", exact=True).select_option("limited")
    page.get_by_label("Order team").check()
    press(page, "Create invitation")
    link = page.locator("#invitation").inner_text()
    problems += problems_of(page, "story-invitation")

    context = browser.new_context(viewport={"width": 1280, "height": 900}, locale="en-GB")
    try:
        hers = context.new_page()
        hers.goto(link)
        problems += problems_of(hers, "story-join")
        for field in ("new_password1", "new_password2"):
            hers.locator(f"input[name={field}]").fill(PERSONS_PASSWORD)
        press(hers, "Sign in")
        hers.goto(f"{url}/messages/?topic=TeamOrders&range=15m")
        expect(hers.locator("main")).to_contain_text("key-of-TeamOrders")
        hers.goto(f"{url}/messages/?topic=Wages&range=15m")
        expect(hers.locator("main")).not_to_contain_text("key-of-Wages")
        problems += problems_of(hers, "story-not-her-topic")
        answer = hers.goto(f"{url}/topics/t/Wages/edit/")
        assert answer is not None
        assert answer.status == 403
        problems += problems_of(hers, "story-refused")
        hers.goto(f"{url}/topics/t/TeamOrders/edit/")
        hers.get_by_label("Write queues", exact=True).fill("2")
        hers.get_by_label("Read queues", exact=True).fill("2")
        review(hers)
        apply(hers)
        problems += problems_of(hers, "story-her-topic")
    finally:
        context.close()
    assert problems == []


def test_clients_follow_a_planned_file_until_it_is_undone(
    page: Page, guarded: Appliance, java_4: JavaClients
) -> None:
    problems: list[str] = []
    url, topic, group, witness = guarded.url, "Configured", "configured-group", "witness-group"

    # A topic and its group are imported from YAML.
    page.goto(f"{url}/files/import/")
    target = {
        "trebuchet": 1,
        "topics": {topic: {"readQueueNums": 2, "writeQueueNums": 2}},
        "groups": {group: {}, witness: {}},
    }
    page.get_by_label("Or paste its content").fill(yaml.safe_dump(target))
    review(page)
    problems += problems_of(page, "story-files-import")
    page.get_by_label("Reason (saved").fill("the shop opens")
    apply(page)

    with (
        producer(java_4, guarded, "configured-producer", CLIENT) as sending,
        follower(java_4, guarded, topic, group) as followed,
        follower(java_4, guarded, topic, witness) as others,
    ):
        sent(sending, topic, "first")
        received(followed, "first")

        # Without write permission the producer is rejected; after the undo it can send again.
        edit_file(page, url, "topics.json", topic, perm=4)
        problems += problems_of(page, "story-files-editor")
        review(page)
        expect(page.locator("main")).to_contain_text(topic)
        problems += problems_of(page, "story-files-plan")
        apply(page)
        # It notices with its next route update.
        until(lambda: sending.send(topic, "closed") != SENT, "a refusal", seconds=SECONDS)
        undo(page)
        sent(sending, topic, "open")
        received(followed, "open")

        # A disabled group gets nothing, while another one does; after the undo it gets everything.
        edit_file(page, url, "subscriptionGroup.json", group, consumeEnable=False)
        review(page)
        apply(page)
        assert sending.send(topic, "held") == SENT
        received(others, "held")
        assert "held" not in followed.keys
        undo(page)
        received(followed, "held")

        # The slower user sees both versions, and changes nothing.
        edit_file(page, url, "topics.json", topic, writeQueueNums=4, readQueueNums=4)
        faster = page.context.new_page()
        edit_file(faster, url, "topics.json", topic, readQueueNums=3, writeQueueNums=3)
        review(faster)
        apply(faster)
        review(page)
        expect(page.get_by_role("alert")).to_contain_text(
            "Someone else changed this after you opened it"
        )
        problems += problems_of(page, "story-files-overtaken")
        faster.goto(f"{url}/files/b/broker-a/topics.json/?q={topic}")
        expect(faster.locator("#file-text")).to_contain_text(re.compile(r'"writeQueueNums":\s*3\b'))
        faster.goto(f"{url}/files/b/broker-a/topics.json/history/")
        problems += problems_of(faster, "story-files-history")
        assert sending.send(topic, "last") == SENT
        received(followed, "last")
    assert problems == []


def test_a_topic_shrinks_in_two_steps_while_clients_continue(
    page: Page, guarded: Appliance, java_4: JavaClients
) -> None:
    problems: list[str] = []
    url, topic, group = guarded.url, "Shrinking", "shrinking-group"
    create_topic(page, url, topic, QUEUES)
    with producer(java_4, guarded, "shrinking-producer", CLIENT) as sending:
        keys = [f"early-{number}" for number in range(UNREAD)]
        with follower(java_4, guarded, topic, group) as followed:
            sent(sending, topic, "before")
            received(followed, "before")
        for key in keys:
            assert sending.send(topic, key) == SENT

        # Changing both at once would lose messages still sent to the removed queues.
        page.goto(f"{url}/topics/t/{topic}/edit/")
        for label in ("Write queues", "Read queues"):
            page.get_by_label(label, exact=True).fill(str(KEPT_QUEUES))
        review(page)
        warning = page.locator("main .banner[data-state=warn]")
        expect(warning).to_contain_text("Reduce the write queues first")
        problems += problems_of(page, "story-shrink-at-once")

        # First the write queues.
        page.goto(f"{url}/topics/t/{topic}/edit/")
        page.get_by_label("Write queues", exact=True).fill(str(KEPT_QUEUES))
        review(page)
        apply(page)
        page.goto(f"{url}/topics/t/{topic}/")
        draining = page.locator("#draining")
        expect(draining).to_contain_text("not fully read")
        expect(draining).to_contain_text(f"{UNREAD_GONE} msg to read")
        problems += problems_of(page, "story-shrink-draining")
        page.get_by_role("link", name="Step 2: reduce read queues").click()
        review(page)
        expect(warning).to_contain_text(re.compile(rf"\b{UNREAD_GONE}\b"))
        problems += problems_of(page, "story-shrink-too-early")
        page.goto(f"{url}/topics/t/{topic}/")
        assert sending.send(topic, "between") == SENT

        with follower(java_4, guarded, topic, group) as followed:
            received(followed, "between", *keys)
            # The page follows by itself; then the read queues.
            read = draining.locator(".chip[data-state=ok]")
            expect(read).to_have_text("fully read", timeout=FOLLOWED_MS)
            problems += problems_of(page, "story-shrink-drained")
            page.get_by_role("link", name="Step 2: reduce read queues").click()
            review(page)
            expect(warning).to_have_count(0)
            apply(page)
            for number in range(2 * QUEUES):
                assert sending.send(topic, f"late-{number}") == SENT
            received(followed, *(f"late-{number}" for number in range(2 * QUEUES)))
            page.goto(f"{url}/topics/t/{topic}/")
            expect(draining).to_have_count(0)

            # Purged, it still works for both; deleted, it's gone.
            page.get_by_role("link", name="Purge").click()
            confirm(page, topic)
            sent(sending, topic, "emptied")
            received(followed, "emptied")
        page.goto(f"{url}/topics/t/{topic}/")
        page.get_by_role("link", name="Delete").click()
        confirm(page, topic)
        page.goto(f"{url}/topics/?q={topic}")
        expect(page.get_by_role("link", name=topic, exact=True)).to_have_count(0)
        answer = page.goto(f"{url}/topics/t/{topic}/")
        assert answer is not None
        assert answer.status == 404
        problems += problems_of(page, "story-topic-gone")
    assert problems == []


def confirm(page: Page, name: str) -> None:
    """Type the name that a confirmation requests, and confirm."""
    danger = page.locator("form.danger:visible")
    expect(danger).to_be_visible()
    if danger.locator("#danger-name").count():
        danger.locator("#danger-name").fill(name)
    with page.expect_navigation():
        danger.locator("button[type=submit]").click()
    expect(page.locator(".toast[data-state=ok]").first).to_be_visible()
