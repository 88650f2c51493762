"""Schemathesis, which has only the schema, makes no operation of the API fail."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any

import hypothesis
import pytest
import requests
import schemathesis
from django.test import Client
from schemathesis.generation import GenerationMode

from console.api.schema import openapi

pytestmark = [pytest.mark.django_db, pytest.mark.fuzz]

CALLS = 2000
MODES = (GenerationMode.POSITIVE, GenerationMode.NEGATIVE)
ORIGIN = "http://127.0.0.1:8000"


def sent(client: Client, case: Any, token: str) -> Any:
    """Send a case through Django's own client, in the transaction of the test."""
    arguments = case.as_transport_kwargs(ORIGIN, {"Authorization": f"Bearer {token}"})
    known = ("method", "url", "headers", "params", "json", "data", "cookies")
    request = requests.Request(
        **{name: arguments[name] for name in known if name in arguments}
    ).prepare()
    headers = {name: str(value) for name, value in request.headers.items()}
    content_type = headers.pop("Content-Type", "")
    return client.generic(
        str(request.method),
        request.path_url,
        request.body or b"",
        content_type=content_type,
        headers=headers,
    )


def test_schemathesis_finds_no_failure(programs, harmless, settings) -> None:
    settings.TREBUCHET_API_REQUESTS_A_MINUTE = 100 * CALLS
    schema = schemathesis.openapi.from_dict(openapi())
    found: Any = schema.get_all_operations()
    operations = [each.ok() for each in found]
    client = Client(raise_request_exception=False)
    answers: list[tuple[int, str]] = []

    def tell(case: Any) -> None:
        answer = sent(client, case, programs.admin.text)
        answers.append((answer.status_code, f"{case.method} {case.formatted_path} {case.body!r}"))

    for operation in operations:
        request = hypothesis.settings(
            max_examples=-(-CALLS // len(operations)),
            deadline=None,
            database=None,
            derandomize=True,
            phases=(hypothesis.Phase.generate,),
            suppress_health_check=list(hypothesis.HealthCheck),
        )
        right, wrong = (operation.as_strategy(generation_mode=mode) for mode in MODES)
        test: Any = hypothesis.given(right | wrong)
        request(test(tell))()

    failed = [
        each
        for each in answers
        if each[0] >= HTTPStatus.INTERNAL_SERVER_ERROR and each[0] != HTTPStatus.SERVICE_UNAVAILABLE
    ]
    assert failed == []
    assert len(answers) >= CALLS
    assert {HTTPStatus.OK, HTTPStatus.UNPROCESSABLE_ENTITY} <= {status for status, _ in answers}
