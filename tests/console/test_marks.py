"""Marks: set by users and by programs with a token, bounded, and shown on every chart."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from django.test import Client
from django.urls import reverse

from console.lib.moment import now_ms
from console.observe.marks import setting
from console.observe.marks.models import TEXT_CHARACTERS_MAX, Mark, Token
from console.people.audit.models import Entry

if TYPE_CHECKING:
    from typing import Any

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("brokers")]

HOUR_MS = 3_600_000


@pytest.fixture
def token() -> str:
    return setting.new_token("pipeline", "ada", now_ms())


def post(token: str, content: object, **headers: str) -> Any:
    body = content if isinstance(content, (str, bytes)) else json.dumps(content)
    # A program has no session and no form token.
    return Client(enforce_csrf_checks=True).post(
        reverse("marks:api"),
        body,
        content_type="application/json",
        headers={"Authorization": f"Bearer {token}", **headers},
    )


def test_a_program_sets_a_mark_that_every_chart_shows(token, actors) -> None:
    before = now_ms()

    answer = post(token, {"text": " shop 1.4.2 <b>"})

    mark = Mark.objects.get()
    assert answer.status_code == 201
    assert answer.json() == {"id": mark.pk, "at_ms": mark.at_ms, "text": "shop 1.4.2 <b>"}
    assert before <= mark.at_ms <= now_ms()
    Mark.objects.update(at_ms=before - 60_000)
    for kind, slug, name in (("topic", "messages", "Orders"), ("cluster", "messages", "all")):
        url = reverse("history:points", args=[kind, slug, name])
        [shown] = actors.reader.get(url).json()["marks"]
        assert (shown["what"], shown["text"]) == ("deploy", "shop 1.4.2 <b>")
    assert "shop 1.4.2 &lt;b&gt;" in actors.reader.get(reverse("marks:list")).text


def test_a_mark_may_be_set_for_a_past_time(token) -> None:
    at_ms = now_ms() - HOUR_MS

    assert post(token, {"text": "shop", "at_ms": at_ms}).json()["at_ms"] == at_ms


@pytest.mark.parametrize(
    "content",
    [
        "",
        "{",
        "[]",
        '"text"',
        b"\xff",
        "[" * 10_000,
        {},
        {"text": ""},
        {"text": "  "},
        {"text": 5},
        {"text": "two\nlines"},
        {"text": "x" * (TEXT_CHARACTERS_MAX + 1)},
        {"text": "x", "at_ms": "now"},
        {"text": "x", "at_ms": True},
        {"text": "x", "at_ms": 1.5},
        {"text": "x", "at_ms": -1},
        {"text": "x", "at_ms": 10**30},
    ],
)
def test_an_invalid_mark_is_not_set_and_the_reason_is_returned(token, content) -> None:
    answer = post(token, content)

    assert answer.status_code == 400
    assert answer.json()["error"]
    assert not Mark.objects.exists()


@pytest.mark.parametrize("wrong", ["", "x", "tbm_x", "tbm_"])
def test_without_a_token_of_this_console_nothing_is_set(wrong, token) -> None:
    answer = post(wrong, {"text": "shop"})

    assert answer.status_code == 401
    assert answer["www-authenticate"] == "Bearer"
    assert not Mark.objects.exists()
    assert Entry.objects.get().outcome == Entry.Outcome.REFUSED


def test_a_session_is_not_a_token(actors) -> None:
    answer = actors.admin.post(reverse("marks:api"), {"text": "shop"})

    assert answer.status_code == 401


def test_a_tokens_marks_per_hour_are_limited_without_affecting_others(token, monkeypatch) -> None:
    monkeypatch.setattr(setting, "MARKS_AN_HOUR_MAX", 2)
    other = setting.new_token("other", "ada", now_ms())

    codes = [post(token, {"text": "shop"}).status_code for _ in range(3)]
    refused = post(token, {"text": "shop"})
    Mark.objects.filter(token__name="pipeline").update(made_ms=now_ms() - HOUR_MS - 1)

    assert codes == [201, 201, 429]
    assert refused["retry-after"] == "3600"
    assert post(other, {"text": "shop"}).status_code == 201
    assert post(token, {"text": "shop"}).status_code == 201


def test_the_number_of_marks_is_limited(token, monkeypatch) -> None:
    monkeypatch.setattr(setting, "MARKS_MAX", 3)

    for number in range(5):
        post(token, {"text": f"shop {number}"})

    assert {mark.text for mark in Mark.objects.all()} == {"shop 2", "shop 3", "shop 4"}


def test_a_token_is_shown_once_and_stored_as_a_digest(actors) -> None:
    page = actors.admin.post(reverse("marks:token-create"), {"name": "pipeline"}).text

    [shown] = {part.split("<")[0] for part in page.split('id="mark-token">')[1:]}
    kept = Token.objects.get()
    assert post(shown, {"text": "shop"}).status_code == 201
    assert shown not in str(kept.__dict__)
    assert shown not in actors.admin.get(reverse("marks:list")).text
    assert shown not in "".join(str(entry.__dict__) for entry in Entry.objects.all())


def test_a_deleted_token_sets_nothing_and_its_marks_stay(token, actors) -> None:
    post(token, {"text": "shop"})

    delete = reverse("marks:token-delete", args=[Token.objects.get().pk])
    assert actors.admin.post(delete).status_code == 422
    actors.admin.post(delete, {"name": "pipeline"})

    assert post(token, {"text": "again"}).status_code == 401
    assert [(mark.text, mark.by) for mark in Mark.objects.all()] == [("shop", "pipeline")]


def test_two_tokens_cannot_have_one_name(token, actors) -> None:
    answer = actors.admin.post(reverse("marks:token-create"), {"name": "pipeline"}, follow=True)

    assert "already exists" in answer.text
    assert Token.objects.count() == 1


def test_a_read_only_user_sees_marks_but_no_tokens(token, actors) -> None:
    post(token, {"text": "shop"})

    page = actors.reader.get(reverse("marks:list")).text

    assert "shop" in page
    assert reverse("marks:token-create") not in page
    assert reverse("marks:add") not in page
    for name in ("marks:add", "marks:token-create"):
        assert actors.reader.post(reverse(name), {"text": "x", "name": "x"}).status_code == 403


def test_a_user_sets_a_mark_for_now(actors) -> None:
    actors.admin.post(reverse("marks:add"), {"text": "load test begins"})
    refused = actors.admin.post(reverse("marks:add"), {"text": " "}, follow=True)

    mark = Mark.objects.get()
    assert (mark.text, mark.by, mark.token) == ("load test begins", "ada", None)
    assert "Enter a text of one line" in refused.text
