"""Common parts of the API: tokens, scopes, roles, limits, idempotency keys, problems."""

from __future__ import annotations

import json
from datetime import timedelta

import pytest
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from console.accounts.scopes import AREAS, covers, every_scope
from console.api.answers import KEPT_MS, KEYS_MAX
from console.api.models import ApiToken, KeptAnswer
from console.api.tokens import TOKENS_MAX, digest_of, is_header_usable
from console.gateway.errors import BrokerDownError
from console.lib.moment import now_ms
from console.people.audit.models import Entry
from tests.console.api.conftest import Program

pytestmark = pytest.mark.django_db

MARK = {"text": "shop 1.4.2"}


@pytest.fixture
def at(monkeypatch):
    """Set the clock of the console."""

    def later(**passed: int) -> None:
        moment = timezone.now() + timedelta(**passed)
        monkeypatch.setattr("django.utils.timezone.now", lambda: moment)

    return later


def detail_of(response) -> str:
    assert response["Content-Type"] == "application/problem+json"
    problem = json.loads(response.content)
    assert problem["status"] == response.status_code
    assert problem["request_id"] == response["X-Request-Id"]
    return str(problem["detail"])


@pytest.mark.parametrize(
    "header", ["", "Bearer", "Bearer tba_guessed", "Basic YWRhOng=", "Bearer "]
)
def test_without_one_of_our_tokens_nothing_opens(header, programs, actors) -> None:
    for client in (Client(), actors.admin):
        response = client.get("/api/v1/topics", headers={"Authorization": header})

        assert response.status_code == 401
        assert response["WWW-Authenticate"].startswith("Bearer")
        assert "token" in detail_of(response)


def test_a_program_is_not_a_stranger_while_its_token_is_valid(programs, at) -> None:
    header = f"Bearer {programs.reader.text}"

    assert is_header_usable(header)
    assert not is_header_usable("Bearer tba_guessed")
    at(days=31)
    assert not is_header_usable(header)


def test_a_token_expires_by_the_clock(programs, at) -> None:
    assert programs.reader.get("/topics").status_code == 200

    at(days=30, minutes=1)
    response = programs.reader.get("/topics")

    assert response.status_code == 401
    assert "expired" in detail_of(response)


def test_a_disabled_users_token_opens_nothing(programs, reader_account) -> None:
    reader_account.is_active = False
    reader_account.save()

    response = programs.reader.get("/topics")

    assert response.status_code == 401
    assert "disabled" in detail_of(response)


def test_only_the_digest_of_a_token_is_stored(programs) -> None:
    token = programs.admin.token

    assert token.digest == digest_of(programs.admin.text)
    values = [str(getattr(token, each.attname)) for each in ApiToken._meta.fields]
    assert not any(programs.admin.text in value for value in values)


def test_a_token_records_when_and_from_where_it_is_used(programs) -> None:
    programs.reader.get("/topics")

    programs.reader.token.refresh_from_db()
    assert abs(now_ms() - programs.reader.token.used_ms) < 60_000
    assert programs.reader.token.used_from == "127.0.0.1"


def test_a_token_allows_what_its_scopes_name(brokers, admin_account) -> None:
    program = Program(admin_account, ["topics:read", "marks:write"])

    assert program.get("/topics").status_code == 200
    assert program.get("/marks").status_code == 200
    refused = program.get("/groups")

    assert refused.status_code == 403
    assert "groups:read" in detail_of(refused)


def test_every_area_has_both_scopes_and_no_scope_covers_another_area() -> None:
    for area in AREAS:
        for other in AREAS:
            assert covers([f"{other}:read"], area, writes=False) == (area == other)
            assert covers([f"{other}:write"], area, writes=True) == (area == other)
        assert not covers([f"{area}:read"], area, writes=True)
        # Accounts outlive the token that creates them.
        assert covers(["*:write"], area, writes=True) == (area != "people")
    assert len(every_scope()) == 2 * len(AREAS) + 2


def test_a_token_may_not_exceed_its_owners_permissions(programs) -> None:
    response = programs.operator.get("/audit")

    assert response.status_code == 403
    assert "Administrator" in detail_of(response)


def test_a_session_beside_a_token_is_ignored(programs, actors) -> None:
    headers = {"Authorization": f"Bearer {programs.reader.text}"}

    response = actors.admin.get("/api/v1/audit", headers=headers)

    assert response.status_code == 403
    assert actors.admin.get(reverse("audit:list")).status_code == 200


def test_a_tokens_requests_per_minute_are_limited(programs, settings, at) -> None:
    settings.TREBUCHET_API_REQUESTS_A_MINUTE = 3
    at(seconds=0)

    answers = [programs.reader.get("/marks") for _ in range(4)]

    assert [each.status_code for each in answers] == [200, 200, 200, 429]
    assert [each["RateLimit-Remaining"] for each in answers] == ["2", "1", "0", "0"]
    assert 0 < int(answers[-1]["Retry-After"]) <= 60
    assert "3 requests per minute" in detail_of(answers[-1])
    assert programs.operator.get("/marks").status_code == 200
    at(minutes=1)
    assert programs.reader.get("/marks").status_code == 200


def test_an_answer_the_program_already_has_is_not_resent(programs) -> None:
    first = programs.reader.get("/marks")

    again = programs.reader.get("/marks", If_None_Match=first["ETag"])

    assert again.status_code == 304
    assert again.content == b""
    assert again["ETag"] == first["ETag"]


def test_no_other_site_may_read_answers(programs) -> None:
    response = programs.reader.get("/marks", Origin="https://example.com")

    assert "Access-Control-Allow-Origin" not in response


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/nothing", 404),
        ("DELETE", "/topics", 405),
        ("GET", "/topics?limit=0", 422),
        ("GET", "/topics?cursor=x", 422),
        ("GET", "/topics/None", 404),
        ("GET", "/marks?cursor=WyJhIl0", 422),
        ("GET", "/replays/99999999999999999999", 422),
        ("GET", "/replays/9223372036854775807", 404),
    ],
)
def test_each_failure_is_a_problem_with_an_explanation(method, path, status, programs) -> None:
    response = programs.admin.ask(method, path)

    assert response.status_code == status
    assert detail_of(response)


def test_a_missing_broker_is_a_problem_with_advice(programs, brokers, monkeypatch) -> None:
    brokers.fails = BrokerDownError("127.0.0.1:10911", "timed out")

    response = programs.reader.get("/topics")

    assert response.status_code == 503
    assert "isn't responding" in detail_of(response)


def test_a_list_continues_at_its_cursor_while_rows_change(programs, brokers) -> None:
    for name in ("A", "B", "C", "D"):
        brokers.add_topic(name)

    first = programs.reader.get("/topics?limit=2&kind=normal").json()
    brokers.topic_configs.pop("B")
    brokers.add_topic("Aa")
    second = programs.reader.get(f"/topics?limit=2&kind=normal&cursor={first['next']}").json()

    assert [each["name"] for each in first["items"]] == ["A", "B"]
    assert [each["name"] for each in second["items"]] == ["C", "D"]
    assert second["next"] is None


def test_a_write_with_a_key_is_applied_once_and_answered_twice(programs) -> None:
    first = programs.operator.post("/marks", MARK, Idempotency_Key="a")
    again = programs.operator.post("/marks", MARK, Idempotency_Key="a")

    assert (first.status_code, again.status_code) == (201, 201)
    assert first.json() == again.json()
    assert ("Idempotency-Replayed" in first, again["Idempotency-Replayed"]) == (False, "true")
    assert Entry.objects.filter(action="mark.add").count() == 1


def test_a_rejection_is_also_repeated(programs) -> None:
    first = programs.operator.post("/marks", {"text": ""}, Idempotency_Key="a")
    again = programs.operator.post("/marks", {"text": ""}, Idempotency_Key="a")

    assert (first.status_code, again.status_code) == (422, 422)
    assert again["Content-Type"] == "application/problem+json"


@pytest.mark.parametrize(
    ("path", "body"), [("/marks", {"text": "other"}), ("/marks?x=1", MARK)], ids=["body", "address"]
)
def test_a_key_belongs_to_one_request(path, body, programs) -> None:
    programs.operator.post("/marks", MARK, Idempotency_Key="a")

    response = programs.operator.post(path, body, Idempotency_Key="a")

    assert response.status_code == 422
    assert "a different request" in detail_of(response)
    assert Entry.objects.filter(action="mark.add").count() == 1


def test_keys_of_two_tokens_are_independent(programs) -> None:
    programs.operator.post("/marks", MARK, Idempotency_Key="a")
    programs.admin.post("/marks", MARK, Idempotency_Key="a")

    assert Entry.objects.filter(action="mark.add").count() == 2


def test_a_key_without_an_answer_is_not_retried(programs) -> None:
    programs.operator.post("/marks", MARK, Idempotency_Key="a")
    KeptAnswer.objects.update(status=None)

    response = programs.operator.post("/marks", MARK, Idempotency_Key="a")

    assert response.status_code == 409
    assert Entry.objects.filter(action="mark.add").count() == 1


def test_keys_are_kept_for_a_day_and_limited_in_number(programs, at) -> None:
    made = [
        KeptAnswer(token=programs.operator.token, key=f"k{each}", digest="x", made_ms=now_ms())
        for each in range(KEYS_MAX + 5)
    ]
    KeptAnswer.objects.bulk_create(made)

    programs.operator.post("/marks", MARK, Idempotency_Key="a")
    assert KeptAnswer.objects.count() == KEYS_MAX
    at(milliseconds=KEPT_MS + 1)
    programs.operator.post("/marks", MARK, Idempotency_Key="a")

    assert KeptAnswer.objects.count() == 1
    assert Entry.objects.filter(action="mark.add").count() == 2


@pytest.mark.parametrize("key", ["x" * 129, "a\tb"])
def test_an_invalid_key_is_rejected(key, programs) -> None:
    response = programs.operator.post("/marks", MARK, Idempotency_Key=key)

    assert response.status_code == 400
    assert not Entry.objects.filter(action="mark.add").exists()


@pytest.mark.parametrize(
    "body",
    [b"[1]", b"{", b'{"text": "\\ud800"}', b"\xff", b'{"text": "x", "other": 1}', b"[" * 5_000],
)
def test_an_invalid_body_is_rejected_with_an_explanation(body, programs) -> None:
    response = Client().post(
        "/api/v1/marks",
        body,
        content_type="application/json",
        headers={"Authorization": f"Bearer {programs.operator.text}"},
    )

    assert response.status_code in (400, 422)
    assert detail_of(response)


def test_the_audit_names_token_and_request(programs, operator_account) -> None:
    response = programs.operator.post("/marks", MARK)

    entry = Entry.objects.get(action="mark.add")
    assert entry.actor == operator_account
    assert entry.token == programs.operator.token.name
    assert entry.request_id == response["X-Request-Id"]
    assert len(entry.request_id) == 32


def test_a_rejected_token_is_audited_without_its_text(programs, at) -> None:
    at(days=31)
    programs.reader.get("/topics")

    entry = Entry.objects.get(action="api.refused")
    assert entry.subject == programs.reader.token.name
    assert programs.reader.text not in str(entry.__dict__)


def test_a_token_is_created_on_a_page_and_shown_once(actors, reader_account) -> None:
    data = {"name": "pipeline", "scopes": ["topics:read", "*:read"], "days": 7}

    made = actors.reader.post(reverse("api:token-create"), data).content.decode()
    token = ApiToken.objects.get()
    shown = actors.reader.get(reverse("api:index")).content.decode()

    text = made.partition("tba_")[2].partition("<")[0]
    assert token.owner == reader_account
    assert token.digest == digest_of(f"tba_{text}")
    assert set(token.scopes) == {"topics:read", "*:read"}
    assert text not in shown
    assert "pipeline" in shown
    assert token.expires_ms - token.made_ms == 7 * 86_400_000


@pytest.mark.parametrize(
    ("data", "text"),
    [
        ({"scopes": ["topics:read"], "days": 7}, "required"),
        ({"name": "x", "days": 7}, "Choose at least one"),
        ({"name": "x", "scopes": ["everything"], "days": 7}, "valid choice"),
        ({"name": "x", "scopes": ["topics:read"], "days": 4_000}, "valid choice"),
        ({"name": "a\nb", "scopes": ["topics:read"], "days": 7}, "one line"),
    ],
)
def test_an_invalid_token_is_not_created(data, text, actors) -> None:
    response = actors.reader.post(reverse("api:token-create"), data)

    assert response.status_code == 422
    assert text in response.content.decode()
    assert not ApiToken.objects.exists()


def test_the_number_of_a_users_tokens_is_limited(actors, reader_account) -> None:
    for number in range(TOKENS_MAX):
        ApiToken.objects.create(
            owner=reader_account, name=str(number), digest=str(number), made_ms=1, expires_ms=2
        )
    data = {"name": "x", "scopes": ["topics:read"], "days": 7}

    response = actors.reader.post(reverse("api:token-create"), data)

    assert response.status_code == 302
    assert ApiToken.objects.count() == TOKENS_MAX


def test_a_token_is_deleted_by_its_owner_or_an_administrator(programs, actors) -> None:
    mine, others = programs.reader.token, programs.operator.token

    for client, token, status in (
        (actors.reader, others, 404),
        (actors.reader, mine, 302),
        (actors.admin, others, 302),
    ):
        url = reverse("api:token-delete", args=[token.pk])
        assert client.post(url).status_code == status

    assert programs.reader.get("/topics").status_code == 401
    assert programs.admin.get("/topics").status_code == 200


def test_the_schema_is_for_programs_and_people(programs, actors) -> None:
    for response in (
        programs.reader.get("/openapi.json"),
        actors.reader.get("/api/v1/openapi.json"),
    ):
        assert response.status_code == 200
        assert response.json()["openapi"].startswith("3.1")
    assert Client().get("/api/v1/openapi.json").status_code == 302
