"""No call makes the API fail, with nonsense values for everything that its schema names."""

from __future__ import annotations

import json
import os
import random
from typing import Any
from urllib.parse import quote, urlencode

import pytest
from django.test import Client

from console.api.operations import OPERATIONS
from console.api.schema import openapi

pytestmark = pytest.mark.django_db

# Increase it for a longer run: TREBUCHET_API_CALLS=2000.
CALLS = int(os.environ.get("TREBUCHET_API_CALLS", "300"))
SEED = int(os.environ.get("TREBUCHET_API_SEED", "15"))
TEXTS = [
    *("", "0", "-1", "1", "Orders", "billing", "broker-a", "broker-a:0", "csv", "jsonl", "*"),
    *("9223372036854775807", "9223372036854775808", "1e309", "NaN", "null", "true", "[]", "{}"),
    *(
        "a" * 300,
        "%00",
        "\x00",
        "\x01",
        "\n",
        "\u202e",
        "\ud7ff",
        "\U0001f600",
        "../..",
        "%RETRY%x",
    ),
    *("' OR 1=1 --", "<script>", "2026-11-22T22:30", "topics.json", "c4ca4238", "=1+1", "$.a["),
]
VALUES: list[Any] = [
    *TEXTS,
    *(None, True, False, 0, -1, 1, 2**31, 2**63 - 1, 2**63, 2**200, 1.5, -0.0, 1e308),
    *([], {}, [1], ["x", None], {"a": 1}, [[["x"]]], ["broker-a"], [2**70]),
]


def schema_paths() -> list[tuple[str, str, dict[str, Any]]]:
    return [
        (method.upper(), path, described)
        for path, methods in openapi()["paths"].items()
        for method, described in methods.items()
    ]


def call_of(dice: random.Random, path: str, described: dict[str, Any]) -> tuple[str, Any]:
    """Return an address and a body for an operation; half of the values may be valid."""
    query: list[tuple[str, str]] = []
    for each in described.get("parameters", []):
        if each["in"] == "path":
            value = dice.choice(TEXTS) or "x"
            path = path.replace(f"{{{each['name']}}}", quote(value, safe=""))
        elif each["in"] == "query" and (each["required"] or dice.random() < 0.5):
            query.append((each["name"], dice.choice(TEXTS)))
    content = described.get("requestBody", {}).get("content", {})
    fields = content.get("application/json", {}).get("schema", {}).get("properties", {})
    body = {name: dice.choice(VALUES) for name in fields if dice.random() < 0.6}
    return f"{path}?{urlencode(query)}", body if fields else None


def test_the_schema_is_complete() -> None:
    named = {(method, path) for method, path, _described in schema_paths()}

    assert named == {(each.method, each.shown_path) for each in OPERATIONS.values()}


def test_no_call_is_answered_with_a_failure(programs, harmless, settings) -> None:
    settings.TREBUCHET_API_REQUESTS_A_MINUTE = 10 * CALLS
    dice = random.Random(SEED)
    operations = schema_paths()
    client = Client(raise_request_exception=False)
    failed = []
    for number in range(CALLS):
        method, path, described = operations[number % len(operations)]
        address, body = call_of(dice, path, described)
        text = json.dumps(body) if body is not None else ""
        answer = client.generic(
            method,
            address,
            text,
            content_type="application/json",
            headers={"Authorization": f"Bearer {programs.admin.text}"},
        )
        if answer.status_code >= 500 and answer.status_code != 503:
            failed.append((answer.status_code, method, address, text))
        if answer.status_code >= 400:
            assert answer["Content-Type"] == "application/problem+json"

    assert failed == []
