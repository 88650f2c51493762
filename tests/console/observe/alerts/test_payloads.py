"""Payloads: each kind of channel gets its required format, and no text breaks it."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from urllib.parse import parse_qs

import pytest

from console.observe.alerts.models import Alert, Channel, Message
from console.observe.alerts.notices import made
from console.observe.alerts.payloads import (
    TEXT_CHARACTERS_MAX,
    body_of,
    dingtalk_query,
    headline,
    plain,
    signature,
)
from tests.console.observe.alerts.support import DEAD, about_verdicts

pytestmark = pytest.mark.django_db

NOW_MS = 1_795_251_600_000


@pytest.fixture
def alert() -> Alert:
    return Alert.objects.create(
        rule=about_verdicts(),
        rule_name="verdicts",
        what="dead-letters",
        kind="group",
        broker="broker-a",
        name="billing <b>&",
        thread="x",
        state="firing",
        severity="bad",
        evidence=DEAD,
        began_ms=NOW_MS,
        fired_ms=NOW_MS,
    )


def message(kind: str, content: dict[str, object]) -> Message:
    return Message(
        pk=7, channel=Channel(name="on call", kind=kind), created_ms=NOW_MS, content=content
    )


def shown(kind: str, alert: Alert, **more: object):
    content = made("verdicts", [alert], [], {"thread": alert.thread, **more})
    return json.loads(body_of(message(kind, content)))


def test_a_webhook_gets_everything_as_json(alert: Alert) -> None:
    found = shown("webhook", alert)

    assert (found["version"], found["id"], found["status"], found["firing"]) == (
        1,
        "7",
        "firing",
        1,
    )
    assert found["title"] == "Firing: billing <b>&: Dead letters growing"
    [report] = found["alerts"]
    assert (report["name"], report["broker"], report["severity"]) == (
        "billing <b>&",
        "broker-a",
        "bad",
    )
    assert report["evidence"] == "3 messages became dead letters within 15 min."
    assert report["url"].startswith("http://")
    assert "path" not in report
    assert "/alerts/silence/" in found["silence_url"]


def test_slack_gets_blocks_with_its_characters_escaped(alert: Alert) -> None:
    found = shown("slack", alert)

    assert [each["type"] for each in found["blocks"]] == ["header", "section", "context"]
    assert found["blocks"][0]["text"]["type"] == "plain_text"
    assert "billing &lt;b&gt;&amp;" in found["blocks"][1]["text"]["text"]
    assert "billing <b>" not in found["blocks"][1]["text"]["text"]
    assert "|Silence>" in found["blocks"][2]["elements"][0]["text"]


def test_teams_gets_an_adaptive_card_in_an_envelope(alert: Alert) -> None:
    found = shown("teams", alert)

    [attachment] = found["attachments"]
    assert found["type"] == "message"
    assert attachment["contentType"] == "application/vnd.microsoft.card.adaptive"
    card = attachment["content"]
    assert card["type"] == "AdaptiveCard"
    assert card["body"][0]["color"] == "Attention"
    assert [each["title"] for each in card["actions"]] == ["Alerts", "Silence"]


def test_dingtalk_gets_markdown(alert: Alert) -> None:
    found = shown("dingtalk", alert)

    assert found["msgtype"] == "markdown"
    assert found["markdown"]["title"] == "Firing: billing <b>&: Dead letters growing"
    assert "[Silence](" in found["markdown"]["text"]


@pytest.mark.parametrize("kind", ["slack", "dingtalk"])
def test_a_long_message_is_cut_between_lines(kind: str, alert: Alert) -> None:
    content = made("verdicts", [alert] * 20, [], {})
    for each in content["alerts"]:
        each["subject"] = "x" * 300

    text = json.dumps(json.loads(body_of(message(kind, content))), ensure_ascii=False)

    assert len(text) < TEXT_CHARACTERS_MAX + 1_500
    assert "…" in text


def test_a_headline_describes_what_happens(alert: Alert) -> None:
    ended = Alert.objects.get(pk=alert.pk)
    ended.state, ended.ended_why = "resolved", "clear"

    assert headline(made("r", [], [ended], {})).startswith("Resolved: billing")
    assert headline(made("r", [alert], [], {"repeat": True})).startswith("Still firing: ")
    assert headline(made("r", [alert, alert], [], {})) == "2 alerts of r are firing"
    assert headline(made("r", [], [ended, ended], {})) == "2 alerts of r resolved"
    assert headline(made("", [alert], [], {"left_out": 101})).startswith(
        "101 messages weren't delivered"
    )


def test_mail_has_the_step_and_the_links(alert: Alert) -> None:
    text = plain(made("r", [alert], [], {"thread": "x"}))

    assert "Open the group's dead-letter topic" in text
    assert "Silence: http://" in text


def test_a_message_about_several_threads_has_no_silence_link(alert: Alert) -> None:
    assert shown("webhook", alert, thread="")["silence_url"] == ""


def test_signatures_match_what_receivers_verify() -> None:
    expected = hmac.new(b"key", b"1795251600.{}", hashlib.sha256).hexdigest()
    assert signature("key", "1795251600", b"{}") == f"v1={expected}"

    query = parse_qs(dingtalk_query("SEC1", NOW_MS).lstrip("&"))
    digest = hmac.new(b"SEC1", f"{NOW_MS}\nSEC1".encode(), hashlib.sha256).digest()
    assert query == {"timestamp": [str(NOW_MS)], "sign": [base64.b64encode(digest).decode()]}
