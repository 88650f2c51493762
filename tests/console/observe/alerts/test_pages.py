"""The alert pages: who can see and change what, their empty states, and no secrets."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from django.urls import reverse

from console.lib.moment import now_ms
from console.observe.alerts.links import alert_of, silence_token
from console.observe.alerts.models import (
    Alert,
    Channel,
    Message,
    Rule,
    Silence,
    Window,
    preferences,
)
from console.observe.history import metrics
from console.observe.history.access import history_store
from console.observe.history.tiers import MINUTE_MS
from console.people.audit.models import Entry
from tests.console.observe.alerts.support import DEAD, GROUP, threshold
from tests.console.test_audit_coverage import ALERT_CHANNEL, ALERT_RULE, ALERT_WINDOW
from tests.support.history_points import keep

if TYPE_CHECKING:
    from console.gateway.fakes.broker import FakeBroker
    from tests.console.conftest import Actors

pytestmark = pytest.mark.django_db

PAGES = ("list", "history", "rules", "windows")
ADMINISTRATORS_PAGES = (
    "channels",
    "channel-create",
    "rule-create",
    "window-create",
    "rule-preview",
)
SECRET_URL = "https://hooks.slack.com/services/T0/B0/t0ken"


@pytest.fixture(autouse=True)
def world(brokers: FakeBroker) -> None:
    brokers.add_group("billing")


def alert(rule: Rule | None = None, **more: Any) -> Alert:
    values: dict[str, Any] = {
        "rule": rule,
        "rule_name": "urgent",
        "what": "dead-letters",
        "kind": "group",
        "broker": "broker-a",
        "name": "billing",
        "thread": "dead-letters broker-a billing",
        "state": "firing",
        "severity": "bad",
        "evidence": DEAD,
        "began_ms": now_ms() - 60_000,
        "fired_ms": now_ms() - 60_000,
        "open_key": f"key {Alert.objects.count()}",
    }
    return Alert.objects.create(**values | more)


def urgent() -> Rule:
    return Rule.objects.create(name="urgent", source="verdict")


def text(client: Any, page: str, /, *arguments: object, **query: object) -> str:
    answer = client.get(reverse(f"alerts:{page}", args=arguments), query)
    assert answer.status_code == 200, (page, answer.status_code)
    content: str = answer.content.decode()
    return content


@pytest.mark.parametrize("name", PAGES)
def test_everyone_may_view_and_empty_pages_explain_what_to_do(name: str, actors: Actors) -> None:
    assert 'class="empty' in text(actors.reader, name)
    assert 'class="empty' in text(actors.admin, name)


@pytest.mark.parametrize("name", ADMINISTRATORS_PAGES)
def test_only_administrators_change_things(name: str, actors: Actors) -> None:
    text(actors.admin, name)

    assert actors.reader.get(reverse(f"alerts:{name}")).status_code == 403


def test_a_read_only_user_is_offered_no_change(actors: Actors) -> None:
    alert(urgent())
    Window.objects.create(name="n", kind="weekly", zone="UTC", begins="01:00", minutes=5)

    for name in PAGES:
        content = text(actors.reader, name)
        assert 'method="post" action="/alerts' not in content, name
        assert "/new/" not in content, name


def test_firing_alerts_are_shown_by_urgency_with_their_evidence(actors: Actors) -> None:
    rule = urgent()
    alert(rule, severity="warn", name="shop")
    alert(rule)
    alert(rule, name="quiet", muted="silence")
    alert(rule, name="soon", state="pending", fired_ms=None)

    content = text(actors.reader, "list")

    order = [content.index(each) for each in (">billing<", ">shop<", ">quiet<", ">soon<")]
    assert order == sorted(order)
    assert "3 messages became dead letters within 15 min." in content
    assert "Silenced" in content


def test_the_overview_counts_firing_alerts(actors: Actors, collector: None) -> None:
    assert "data-alerts" not in actors.reader.get(reverse("overview:index")).content.decode()
    alert(urgent())

    content = actors.reader.get(reverse("overview:index")).content.decode()

    assert 'data-alerts="1"' in content
    assert "1 alert firing" in content


def test_the_history_is_narrowed(actors: Actors) -> None:
    alert(name="billing")
    alert(name="shop", state="resolved", ended_ms=now_ms(), open_key=None, severity="warn")

    assert ">shop<" not in text(actors.reader, "history", state="firing")
    assert ">billing<" not in text(actors.reader, "history", severity="warn")
    assert ">billing<" not in text(actors.reader, "history", q="sho")
    assert "No matching alerts" in text(actors.reader, "history", rule="none")


def test_a_rule_is_created_changed_switched_and_deleted(actors: Actors) -> None:
    channel = Channel.objects.create(name="chat", kind="slack", url=SECRET_URL)
    data = ALERT_RULE | {"channels": [channel.pk], "verdicts": ["stopped"]}
    actors.admin.post(reverse("alerts:rule-create"), data)
    rule = Rule.objects.get()
    assert (rule.verdicts, list(rule.channels.all())) == (["stopped"], [channel])

    edit = reverse("alerts:rule-edit", args=[rule.pk])
    assert actors.admin.post(edit, data | {"for_minutes": 7}).status_code == 302
    stale = actors.admin.post(edit, data | {"for_minutes": 9})
    assert stale.status_code == 422
    assert "Someone else" in stale.content.decode()
    assert Rule.objects.get().for_minutes == 7
    actors.admin.post(reverse("alerts:rule-switch", args=[rule.pk]), {"enabled": "off"})
    assert not Rule.objects.get().enabled

    firing = alert(rule, announced=True)
    delete = reverse("alerts:rule-delete", args=[rule.pk])
    assert actors.admin.post(delete, {"name": "another"}).status_code == 422
    assert Rule.objects.exists()
    actors.admin.post(delete, {"name": rule.name})

    firing.refresh_from_db()
    assert (firing.state, firing.ended_why, firing.rule) == ("resolved", "rule", None)
    assert Message.objects.get().content["status"] == "resolved"


@pytest.mark.parametrize(
    ("changed", "problem"),
    [
        ({"name": ""}, "name"),
        ({"name_pattern": " , "}, "name_pattern"),
        ({"for_minutes": 100_000}, "for_minutes"),
        ({"source": "threshold", "series": "x"}, "series"),
        ({"source": "threshold", "series": "group/lag/lag"}, "fires_at"),
        (
            {"source": "threshold", "series": "group/lag/lag", "fires_at": 5, "clears_at": 9},
            "clears_at",
        ),
        (
            {
                "source": "threshold",
                "series": "group/lag/lag",
                "compare": "missing",
                "for_minutes": 60,
            },
            "for_minutes",
        ),
    ],
)
def test_an_invalid_rule_is_rejected(actors: Actors, changed, problem: str) -> None:
    answer = actors.admin.post(reverse("alerts:rule-create"), ALERT_RULE | changed)

    assert answer.status_code == 422
    assert problem in answer.context["form"].errors
    assert Rule.objects.count() == 0


def test_the_preview_counts_alerts_that_would_have_fired(actors: Actors) -> None:
    first = (now_ms() // MINUTE_MS - 60) * MINUTE_MS
    lags = ([500] * 5 + [0] * 10) * 4
    rows = {(GROUP, metrics.LAG): [each for lag in lags for each in [lag] * 6]}
    keep(history_store(), first, rows)
    level = {"source": "threshold", "series": "group/lag/lag", "compare": "above", "fires_at": 100}

    content = text(actors.admin, "rule-preview", **ALERT_RULE | level)

    assert "would have fired 4 times" in content
    assert "Based on 1 of 1 subjects" in content
    assert "Complete the rule" in text(actors.admin, "rule-preview", source="threshold")
    assert "would have fired" in text(
        actors.admin, "rule-preview", **ALERT_RULE | {"least": "warn"}
    )
    assert Rule.objects.count() == 0


def test_a_preview_of_a_rule_changes_nothing(actors: Actors) -> None:
    rule = threshold()
    query = {name: str(value) for name, value in ALERT_RULE.items()}

    text(actors.admin, "rule-preview", pk=str(rule.pk), **query)

    assert Rule.objects.get().name == "lag"


def test_secrets_are_never_shown_again(actors: Actors) -> None:
    data = {"name": "hook", "kind": "webhook", "url": "https://example.com/t0ken", "enabled": "on"}
    made = actors.admin.post(reverse("alerts:channel-create"), data)
    channel = Channel.objects.get()
    assert channel.secret
    assert channel.secret in made.content.decode()
    kept = preferences()
    kept.heartbeat_url = "https://example.com/t0ken"
    kept.save()

    edit = reverse("alerts:channel-edit", args=[channel.pk])
    actors.admin.post(edit, {"name": "hook", "kind": "webhook", "enabled": "on"})
    contents = [
        text(actors.admin, "channel-edit", channel.pk),
        text(actors.admin, "channels"),
        text(actors.admin, "preferences"),
        actors.admin.get(reverse("audit:list")).content.decode(),
        str(list(Entry.objects.values_list("before", "after"))),
    ]

    channel.refresh_from_db()
    assert channel.url == "https://example.com/t0ken"
    assert not any(channel.secret in each or "t0ken" in each for each in contents)
    assert "https://example.com/…" in contents[0]


@pytest.mark.parametrize(
    "changed",
    [
        {"url": ""},
        {"url": "ftp://example.com"},
        {"kind": "email", "to": ""},
        {"kind": "email", "to": "nobody"},
        {"kind": "email", "to": " ".join(f"a{n}@example.com" for n in range(21))},
        {"kind": "fax"},
    ],
)
def test_a_channel_without_a_reachable_target_is_rejected(
    actors: Actors, changed: dict[str, str]
) -> None:
    answer = actors.admin.post(reverse("alerts:channel-create"), ALERT_CHANNEL | changed)

    assert answer.status_code == 422
    assert Channel.objects.count() == 0


def test_a_test_message_takes_the_path_of_alerts_and_is_limited(actors: Actors) -> None:
    channel = Channel.objects.create(name="chat", kind="slack", url=SECRET_URL)

    for _ in range(5):
        actors.admin.post(reverse("alerts:channel-test", args=[channel.pk]))

    assert Message.objects.filter(state="waiting").count() == 3
    content = text(actors.admin, "channel-log", channel.pk)
    assert "Test of channel chat" in content
    assert "No history yet" in content  # nothing is delivered while no collector runs


def test_a_window_keeps_the_users_time_zone(actors: Actors) -> None:
    actors.admin.post(reverse("alerts:window-create"), ALERT_WINDOW | {"enabled": "on"})
    window = Window.objects.get()
    assert (window.begins, window.zone, window.weekdays) == ("02:00", "Europe/Berlin", [0, 6])
    assert "Europe/Berlin" in text(actors.reader, "windows")

    once = ALERT_WINDOW | {"kind": "once", "begins_once": "2026-11-22T22:30"}
    actors.admin.post(reverse("alerts:window-edit", args=[window.pk]), once)

    window.refresh_from_db()
    assert (window.kind, window.begins) == ("once", "2026-11-22T22:30")


@pytest.mark.parametrize(
    "changed",
    [
        {"zone": "Mars/Olympus"},
        {"begins_at": "25:00"},
        {"minutes": 0},
        {"minutes": 99_999},
        {"weekdays": []},
        {"kind": "once", "begins_once": "yesterday"},
    ],
)
def test_a_window_that_is_never_open_is_rejected(actors: Actors, changed: dict[str, Any]) -> None:
    answer = actors.admin.post(reverse("alerts:window-create"), ALERT_WINDOW | changed)

    assert answer.status_code == 422
    assert Window.objects.count() == 0


def test_an_alert_is_silenced_on_the_page_and_the_silence_ended(actors: Actors) -> None:
    firing = alert(urgent())
    actors.admin.post(reverse("alerts:silence", args=[firing.pk]), {"minutes": "240"})
    made = Silence.objects.get()
    firing.refresh_from_db()
    assert (made.by, made.until_ms - made.began_ms) == ("ada", 240 * MINUTE_MS)
    assert firing.muted == "silence"
    assert "Firing without notification" in text(actors.reader, "list")

    end = reverse("alerts:silence-end", args=[made.pk])
    assert "Alerts currently silenced" in actors.admin.get(end).content.decode()
    actors.admin.post(end)

    firing.refresh_from_db()
    assert firing.muted == ""
    assert Silence.objects.count() == 0


def test_a_silence_link_asks_for_confirmation(actors: Actors) -> None:
    firing = alert(urgent())
    url = reverse("alerts:silence-link", args=[silence_token(firing.pk)])

    page = actors.stranger.get(url).content.decode()
    assert "Silence this alert?" in page
    assert Silence.objects.count() == 0
    done = actors.stranger.post(url, {"minutes": "30"}).content.decode()

    assert "Silenced" in done
    assert Silence.objects.get().by == "link in a message"
    entry = Entry.objects.get()
    assert (entry.action, entry.actor_name, entry.outcome) == ("alert.silence", "", "done")


def test_a_link_silences_only_open_alerts(actors: Actors) -> None:
    over = alert(urgent(), state="resolved", ended_ms=now_ms(), open_key=None)
    url = reverse("alerts:silence-link", args=[silence_token(over.pk)])

    assert "Resolved" in actors.stranger.post(url).content.decode()
    assert Silence.objects.count() == 0


@pytest.mark.parametrize("token", ["x", "MQ:1:x", "\u00e9", "a" * 500])
def test_an_unknown_silence_link_is_rejected(actors: Actors, token: str) -> None:
    assert alert_of(token) is None
    url = reverse("alerts:silence-link", args=[token])
    assert actors.stranger.post(url).status_code == 404


def test_charts_have_marks_where_alerts_fired_and_resolved(actors: Actors) -> None:
    alert(fired_ms=now_ms() - 600_000, ended_ms=now_ms() - 300_000, state="resolved")
    alert(name="other")

    answer = actors.reader.get(reverse("history:points", args=["group", "lag", "billing"]))

    marks = [(each["what"], each["text"]) for each in answer.json()["marks"]]
    assert marks == [
        ("alert", "Alert: Dead letters growing"),
        ("alert-end", "Alert resolved: Dead letters growing"),
    ]
