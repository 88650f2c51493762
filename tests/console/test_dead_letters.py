"""Dead letters: groups that have them, replays, marks, and the rest."""

from __future__ import annotations

import json
import re
from datetime import timedelta

import pytest
from django.urls import reverse
from django.utils import timezone

from broker_core.message import names
from console.gateway.errors import BrokerDownError, RequestFailedError
from console.gateway.fakes.broker import ADDRESS
from console.messages.dead_letters import replaying
from console.messages.dead_letters.models import LOST_AFTER_S, Item, Outcome, Run, State
from console.messages.dead_letters.reading import read_letters
from console.people.audit.models import Entry

pytestmark = pytest.mark.django_db

DEAD = "%DLQ%billing"
ROUNDS = 12
RETRY = "%RETRY%billing"


@pytest.fixture
def letters(brokers, monkeypatch):
    """Three of Orders, one of them without a tag, and one of Refunds; replays run at once."""
    brokers.add_group("billing")
    brokers.add_topic("Orders", queue_nums=2)
    brokers.add_topic("Refunds", queue_nums=1)
    brokers.add_topic(RETRY, queue_nums=1)
    brokers.give_up("billing", "Orders", 1_000, tag="paid", key="k1")
    brokers.give_up("billing", "Orders", 2_000, tag="paid", key="k2")
    brokers.give_up("billing", "Refunds", 3_000, tag="late", key="k3")
    brokers.give_up("billing", "Orders", 4_000, key="k4")
    monkeypatch.setattr(replaying, "launch", lambda run: sender(run).run())
    return brokers


def sender(run: Run) -> replaying.Replayer:
    return replaying.Replayer(run, wait=lambda _seconds: False)


def preview(client, **fields: object):
    return client.get(
        reverse("dead_letters:preview", args=["billing"]), {"target": "retry", "rate": 100} | fields
    )


def token_of(answer) -> str:
    found = re.search(r'name="token" value="([^"]+)"', answer.text)
    assert found, answer.text[-2000:]
    return found[1]


def start(client, **fields: object):
    token = token_of(preview(client, **fields))
    return client.post(
        reverse("dead_letters:start", args=["billing"]), {"token": token}, follow=True
    )


def test_the_list_counts_open_dead_letters_in_each_group(actors, letters) -> None:
    letters.give_up("audit", "Orders", 1_000)
    start(actors.operator, topic="Refunds")

    page = actors.reader.get(reverse("dead_letters:list")).text

    rows = re.findall(r"<tr>.*?</tr>", page, re.DOTALL)[1:]
    assert [("audit" in row, "<strong>1</strong>" in row) for row in rows] == [
        (True, True),
        (False, False),
    ]
    assert "<strong>3</strong>" in rows[1]


def test_without_dead_letters_the_page_explains_what_would_appear(actors, brokers) -> None:
    assert "No dead letters" in actors.reader.get(reverse("dead_letters:list")).text
    missing = actors.reader.get(reverse("dead_letters:group", args=["billing"]))
    assert missing.status_code == 404
    assert "has no dead letters" in missing.text


def test_dead_letters_are_counted_by_kind(letters) -> None:
    reasons = read_letters("billing").reasons

    assert [(each.topic, each.tag, each.count, each.oldest_ms) for each in reasons] == [
        ("Orders", "paid", 2, 1_000),
        ("Refunds", "late", 1, 3_000),
        ("Orders", "", 1, 4_000),
    ]


def test_a_replay_goes_to_the_retry_topic_and_keeps_the_message_unchanged(actors, letters) -> None:
    answer = start(actors.operator)

    assert [topic for topic, _body, _table in letters.resent] == [RETRY] * 4
    _topic, body, table = letters.resent[0]
    assert json.loads(body) == {"order": 0}
    assert table[names.PROPERTY_RETRY_TOPIC] == "Orders"
    assert table[names.PROPERTY_KEYS] == "k1"
    assert table["TREBUCHET_REPLAY"] == str(Run.objects.get().pk)
    assert names.PROPERTY_REAL_TOPIC not in table
    assert "4 sent" in answer.text
    entry = Entry.objects.get()
    assert (entry.action, entry.subject, entry.outcome) == ("dead-letter.replay", "billing", "done")
    assert entry.after["messages"] == 4


def test_a_replay_to_their_own_topics_names_the_other_groups(actors, letters) -> None:
    letters.add_group("audit", online=True, topic="Orders")

    shown = preview(actors.operator, target="origin").text
    start(actors.operator, target="origin")

    assert "audit" in shown
    assert [topic for topic, _body, _table in letters.resent] == [
        "Orders",
        "Orders",
        "Refunds",
        "Orders",
    ]
    assert all(names.PROPERTY_RETRY_TOPIC not in table for _t, _b, table in letters.resent)


@pytest.mark.parametrize(
    ("selection", "keys"),
    [
        ({"topic": "Orders"}, ["k1", "k2", "k4"]),
        ({"topic": "Orders", "tag": "paid"}, ["k1", "k2"]),
        ({"tag": "*"}, ["k4"]),
        ({"trial": "on"}, ["k1"]),
        ({"ticked": [1, 3]}, ["k2", "k4"]),
        ({"m": ["broker-a:0:1:999"]}, []),
    ],
)
def test_the_preview_counts_exactly_the_sent_messages(actors, letters, selection, keys) -> None:
    if "ticked" in selection:
        found = read_letters("billing").found
        selection = {"m": [found[each].key for each in selection["ticked"]]}
    shown = preview(actors.operator, **selection)
    if not keys:
        assert "no messages to send" in shown.text
        return
    counted = re.search(r"<dt>Messages sent</dt>\s*<dd>(\d+)", shown.text)
    start(actors.operator, **selection)

    assert [table[names.PROPERTY_KEYS] for _t, _b, table in letters.resent] == keys
    assert counted
    assert int(counted[1]) == len(keys)


def test_any_choice_in_the_preview_counts_the_sent_messages(actors, letters, rng) -> None:
    """Repeatedly: messages already replayed are left out, unless requested."""
    for number in range(20):
        topic, tag = rng.choice(["Orders", "Refunds"]), rng.choice(["paid", "late", ""])
        letters.give_up("billing", topic, 5_000 + number, tag=tag, key=f"more-{number}")
    every = [each.key for each in read_letters("billing").found]
    replayed = 0
    for _ in range(ROUNDS):
        fields: dict[str, object] = rng.choice(
            [
                {"topic": rng.choice(["Orders", "Refunds"])},
                {"tag": rng.choice(["paid", "late", "*"])},
                {"m": rng.sample(every, k=rng.randint(1, len(every)))},
                {"trial": "on"},
            ]
        )
        if rng.random() < 0.5:
            fields["again"] = "on"
        shown = preview(actors.operator, **fields)
        counted = re.search(r"<dt>Messages sent</dt>\s*<dd>(\d+)", shown.text)
        before = len(letters.resent)
        if counted is None:
            assert "no messages to send" in shown.text
            continue
        start(actors.operator, **fields)
        assert len(letters.resent) - before == int(counted[1]), fields
        replayed += int(counted[1])

    assert replayed >= len({table[names.PROPERTY_KEYS] for _t, _b, table in letters.resent}) > 0


def test_a_second_replay_skips_already_sent_messages_by_default(actors, letters) -> None:
    start(actors.operator, topic="Refunds")

    shown = preview(actors.operator)
    start(actors.operator)
    assert "1 selected dead letter was already handled" in shown.text
    assert [t[names.PROPERTY_KEYS] for _t, _b, t in letters.resent] == ["k3", "k1", "k2", "k4"]
    assert "There are no messages to send" in preview(actors.operator).text

    again = preview(actors.operator, again="on").text
    assert re.search(r"<dt>Already replayed</dt>\s*<dd>4", again)


def test_no_target_is_preselected(actors, letters) -> None:
    page = actors.operator.get(reverse("dead_letters:preview", args=["billing"])).text

    assert "checked" not in page.partition("choice-list")[2]
    assert 'name="token"' not in page


def test_looking_at_a_preview_sends_nothing(actors, letters) -> None:
    preview(actors.operator)

    assert not letters.resent
    assert not Run.objects.exists()


@pytest.mark.parametrize("token", ["", "nonsense"])
def test_a_replay_without_a_preview_is_rejected(actors, letters, token) -> None:
    url = reverse("dead_letters:start", args=["billing"])

    assert "nothing was changed" in actors.operator.post(url, {"token": token}, follow=True).text
    assert not letters.resent


def test_a_preview_of_another_group_is_rejected(actors, letters) -> None:
    token = token_of(preview(actors.operator))
    url = reverse("dead_letters:start", args=["audit"])

    actors.operator.post(url, {"token": token})

    assert not letters.resent


def test_a_brokers_rejections_are_reported_and_stop_after_five(actors, letters) -> None:
    for number in range(6):
        letters.give_up("billing", "Orders", 5_000 + number)
    letters.resend_fails = RequestFailedError(ADDRESS, 14, "the disk is full")

    answer = start(actors.operator)

    run = Run.objects.get()
    assert (run.state, Item.objects.filter(outcome=Outcome.FAILED).count()) == (State.STOPPED, 5)
    assert "5 messages in a row failed" in answer.text
    assert "the disk is full" in answer.text
    assert "5 messages are waiting to be sent" in answer.text


def test_an_unanswered_message_may_have_been_sent_and_is_not_resent_unchecked(
    actors, letters
) -> None:
    letters.resend_fails = BrokerDownError(ADDRESS, "no answer")
    start(actors.operator, trial="on")
    letters.resend_fails = None

    start(actors.operator)

    assert Item.objects.filter(outcome=Outcome.UNKNOWN).count() == 1
    assert [table[names.PROPERTY_KEYS] for _t, _b, table in letters.resent] == ["k2", "k3", "k4"]


def test_a_deleted_topic_counts_until_its_deletion(actors, letters) -> None:
    del letters.topic_configs["Refunds"]

    shown = preview(actors.operator, target="origin").text

    assert "accept messages" in shown
    assert re.search(r"<dt>Can&#x27;t be sent</dt>\s*<dd>1", shown)


def test_a_cancelled_replay_ends_and_the_rest_can_be_sent(actors, letters, monkeypatch) -> None:
    def cancelled_midway(run: Run) -> None:
        def wait(_seconds: float) -> bool:
            actors.operator.post(reverse("dead_letters:cancel", args=[run.pk]))
            return False

        replaying.Replayer(run, wait=wait).run()

    with monkeypatch.context() as patch:
        patch.setattr(replaying, "launch", cancelled_midway)
        answer = start(actors.operator)
    run = Run.objects.get()
    assert "The replay was cancelled" in answer.text
    assert run.items.filter(outcome=Outcome.SENT).count() == 2

    resumed = actors.operator.post(reverse("dead_letters:resume", args=[run.pk]), follow=True)

    assert "4 sent" in resumed.text
    assert len({table[names.PROPERTY_KEYS] for _t, _b, table in letters.resent}) == 4


def test_a_replay_reports_that_its_process_has_died(actors, letters, monkeypatch) -> None:
    monkeypatch.setattr(replaying, "launch", lambda _run: None)
    start(actors.operator)
    run = Run.objects.get()
    run.items.filter(queue_offset=0).update(outcome=Outcome.SENDING)
    assert "Running" in actors.reader.get(reverse("dead_letters:run", args=[run.pk])).text
    silent = timezone.now() - timedelta(seconds=LOST_AFTER_S + 1)
    Run.objects.update(heartbeat_at=silent)

    page = actors.reader.get(reverse("dead_letters:run", args=[run.pk])).text

    assert "The console stopped during the replay." in page
    assert "1 may have been sent" in page
    assert "hx-get" not in page


def test_a_groups_page_shows_that_nothing_is_open_after_all_were_replayed(actors, letters) -> None:
    start(actors.operator)

    page = actors.reader.get(reverse("dead_letters:group", args=["billing"]))

    assert page.status_code == 200
    assert "No open dead letters" in page.text


def test_one_group_has_one_replay_at_a_time(actors, letters, monkeypatch) -> None:
    monkeypatch.setattr(replaying, "launch", lambda _run: None)
    start(actors.operator)

    second = start(actors.operator)

    assert "is already running" in second.text
    assert Run.objects.count() == 1


def test_a_replay_respects_its_rate(letters) -> None:
    run = Run.objects.create(group="billing", action="replay", target="retry", rate=10, total=4)
    for letter in read_letters("billing").found:
        broker_name, queue_id, queue_offset, at = letter.place
        Item.objects.create(
            run=run,
            group="billing",
            broker_name=broker_name,
            queue_id=queue_id,
            queue_offset=queue_offset,
            commit_log_offset=at,
        )
    now = 0.0
    sent_at = []

    def wait(seconds: float) -> bool:
        nonlocal now
        now += seconds
        sent_at.append(round(now, 3))
        return False

    replaying.Replayer(run, clock=lambda: now, wait=wait).run()

    assert sent_at == [0.1, 0.2, 0.3]


def test_discarding_needs_a_reason_and_closes_the_dead_letter(actors, letters) -> None:
    url = reverse("dead_letters:discard", args=["billing"]) + "?topic=Refunds"

    without = actors.operator.post(url, {"reason": ""})
    assert without.status_code == 200
    assert not Run.objects.exists()
    actors.operator.post(url, {"reason": "tested with wrong data"})

    assert len(read_letters("billing").open) == 3
    assert Entry.objects.get().after["reason"] == "tested with wrong data"
    group = reverse("dead_letters:group", args=["billing"])
    assert "tested with wrong data" in actors.reader.get(group).text
    assert (
        "discarded"
        not in actors.reader.get(group).text.partition("<tbody>")[2].partition("Activity")[0]
    )
    assert ">discarded</a>" in actors.reader.get(group, {"state": "all"}).text


def test_an_export_with_bodies_is_for_administrators(actors, letters) -> None:
    def url(kind: str) -> str:
        return reverse("dead_letters:export", args=["billing", kind])

    lines = actors.admin.post(url("jsonl")).text.splitlines()
    table = actors.admin.post(url("csv")).text.splitlines()

    assert json.loads(lines[0])["body"] == '{"order": 0}'
    assert json.loads(lines[3])["properties"]["RETRY_TOPIC"] == "Orders"
    assert len(table) == 5
    assert actors.operator.post(url("jsonl")).status_code == 403
    assert actors.admin.post(url("xlsx")).status_code == 404


def test_a_receipt_has_a_line_for_each_change(actors, letters) -> None:
    start(actors.operator)

    url = reverse("dead_letters:receipt", args=[Run.objects.get().pk])

    assert [line.split(",")[3] for line in actors.reader.get(url).text.splitlines()] == [
        "outcome",
        *["sent"] * 4,
    ]


def test_a_recreated_topic_has_other_dead_letters(actors, letters, monkeypatch) -> None:
    monkeypatch.setattr(replaying, "launch", lambda _run: None)
    start(actors.operator)
    Item.objects.update(commit_log_offset=99)

    sender(Run.objects.get()).run()

    assert not letters.resent
    assert set(Item.objects.values_list("outcome", flat=True)) == {Outcome.GONE}


def test_script_in_a_dead_letter_is_shown_as_text(actors, brokers) -> None:
    brokers.give_up("billing", "<script>alert(1)</script>", 1, tag="<img src=x>", key="<b>")

    page = actors.admin.get(reverse("dead_letters:group", args=["billing"])).text

    assert "<script>alert(1)" not in page
    assert "<img src=x>" not in page
