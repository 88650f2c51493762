"""A database that is locked, full or gone: an error message, and no claim of success."""

from __future__ import annotations

import json

import pytest
from django.db import OperationalError
from django.test import Client

from console import error_pages as views
from console.api import operations

SAID = {
    "database is locked": "has locked the console&#x27;s database",
    "database or disk is full": "disk that holds the console&#x27;s database is full",
    "connection to server failed: refused": "connection to server failed: refused",
}


@pytest.fixture
def broken(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> str:
    """Make signing in, a public page, fail in its database."""

    def fails(*_arguments: object, **_named: object) -> None:
        raise OperationalError(request.param)

    monkeypatch.setattr("django.contrib.sessions.backends.base.SessionBase.is_empty", fails)
    return str(request.param)


@pytest.mark.django_db
@pytest.mark.parametrize("broken", list(SAID), indirect=True)
def test_a_page_explains_the_database_problem_and_that_nothing_was_changed(
    broken: str,
) -> None:
    answer = Client(raise_request_exception=False).get("/accounts/sign-in/")

    page = answer.content.decode()
    assert answer.status_code == 503
    assert SAID[broken] in page
    assert "Nothing was changed" in page
    assert "Messages aren&#x27;t affected." in page


def test_an_error_page_that_also_needs_the_database_is_plain_text(
    rf: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_arguments: object) -> None:
        raise OperationalError("gone")

    monkeypatch.setattr(views, "problem", fails)

    answer = views.database_problem(rf.get("/"), OperationalError("gone"))  # type: ignore[attr-defined]  # pytest-django's

    assert (answer.status_code, answer["Content-Type"]) == (503, "text/plain; charset=utf-8")
    assert "responding: gone." in answer.content.decode()


def test_the_api_returns_the_same(rf: object) -> None:
    request = rf.get("/api/v1/topics")  # type: ignore[attr-defined]  # pytest-django's

    answer = operations.on_database_problem(request, OperationalError("database is locked"))

    assert answer.status_code == 503
    assert "has locked the console" in json.loads(answer.content)["detail"]
