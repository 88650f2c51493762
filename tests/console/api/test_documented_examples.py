"""The examples of docs/api.md work as written."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
from django.test import Client

pytestmark = pytest.mark.django_db

DOCUMENT = Path(__file__).resolve().parents[3] / "docs" / "api.md"
ORIGIN = "http://127.0.0.1:8000"


def examples() -> list[str]:
    text = DOCUMENT.read_text(encoding="utf-8").replace("\\\n", "")
    return re.findall(r"^ +(curl .+)$", text, flags=re.MULTILINE)


def sent(command: str, token: str) -> Any:
    """Send the request of a curl command."""
    words = shlex.split(command.replace("$TOKEN", token))[1:]
    method, body, headers, address = "GET", "", {}, ""
    while words:
        word = words.pop(0)
        if word == "-X":
            method = words.pop(0)
        elif word == "-d":
            body = words.pop(0)
        elif word == "-H":
            name, _colon, value = words.pop(0).partition(":")
            headers[name] = value.strip()
        else:
            address = word
    assert address.startswith(f"{ORIGIN}/api/v1/")
    content_type = headers.pop("Content-Type", "")
    path = address.removeprefix(ORIGIN)
    return Client().generic(method, path, body, content_type=content_type, headers=headers)


def test_there_are_examples() -> None:
    assert len(examples()) >= 2


@pytest.mark.parametrize("command", examples())
def test_an_example_works_as_documented(command, programs, brokers) -> None:
    brokers.add_topic("orders")
    brokers.add_group("billing")
    brokers.put("orders", 0, 1_000)
    brokers.offsets["billing", "orders", 0] = 1

    response = sent(command, programs.admin.text)

    assert response.status_code in (200, 201), response.content
    assert json.loads(response.content)
