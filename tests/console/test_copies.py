"""Copy as: mqadmin accepts the commands shown on pages."""

from __future__ import annotations

import ast
import json
import shlex
from html import unescape
from typing import TYPE_CHECKING

import pytest
from django.urls import reverse

from console.api.tokens import new_token
from console.gateway.answers import GroupConfig, TopicConfig
from console.lib.moment import now_ms
from console.ui.copies import mqadmin
from tests.interop.mqadmin_cases import CASES

if TYPE_CHECKING:
    from django.conf import LazySettings
    from django.contrib.auth.models import User
    from django.test import Client

    from console.gateway.fakes.broker import FakeBroker
    from tests.console.conftest import Actors

pytestmark = pytest.mark.django_db

NAME_SERVER_OPTION = "-n"
MESSAGE = "/messages/m/broker-a/0/0/Orders/"
PREVIEW = "/offsets/preview/?group=billing&topic=Orders&mode="


def options_of(words: list[str]) -> set[str]:
    return {word for word in words if word.startswith("-") and not word[1:].isdigit()}


KNOWN: dict[str, set[str]] = {}
for each in CASES:
    KNOWN.setdefault(each.command[0], set()).update(options_of(list(each.command[1:])))


@pytest.fixture
def world(brokers: FakeBroker) -> FakeBroker:
    brokers.add_topic("Orders", queue_nums=2)
    brokers.topic_configs["Orders"] = TopicConfig("Orders", 4, 2, 6, order=True)
    brokers.add_group("billing")
    brokers.group_configs["billing"] = GroupConfig("billing", False, False, False, 2, 3, 0, 1, True)
    brokers.offsets["billing", "Orders", 0] = 0
    brokers.offsets["billing", "Orders", 1] = 0
    brokers.put("Orders", 0, 1, 2)
    return brokers


def copies(actors: Actors, url: str) -> dict[str, str]:
    page = actors.reader.get(url)
    if page.status_code == 403:
        page = actors.admin.get(url)
    found = {each.label: each.text for each in page.context["copies"]}
    html = unescape(page.content.decode())
    assert found
    assert all(text in html for text in found.values())
    return found


def lines(found: dict[str, str]) -> list[str]:
    return [
        line for text in found.values() for line in text.split("\n") if line.startswith("mqadmin ")
    ]


@pytest.mark.parametrize(
    "url",
    [
        "/topics/t/Orders/",
        "/groups/g/billing/",
        "/brokers/b/broker-a/0/",
        MESSAGE,
        PREVIEW + "earliest",
        PREVIEW + "latest",
        PREVIEW + "timestamp&timestamp_ms=1700000000000",
        "/ui/",
    ],
)
def test_every_command_line_has_options_that_are_tried_against_the_original(
    url: str, actors: Actors, world: FakeBroker
) -> None:
    found = lines(copies(actors, url))

    assert found
    for line in found:
        _mqadmin, command, option, _name_server, *rest = shlex.split(line)
        assert option == NAME_SERVER_OPTION
        assert options_of(rest) <= KNOWN[command], line


def test_a_topics_line_recreates_it(actors: Actors, world: FakeBroker) -> None:
    found = copies(actors, "/topics/t/Orders/")

    assert lines(found)[0].endswith("-b 127.0.0.1:10911 -t Orders -r 4 -w 2 -p 6 -o true")
    assert json.loads(found["JSON"])["broker-a"]["write_queue_nums"] == 2
    ast.parse(found["Python: read messages with Spark"])


def test_a_groups_line_has_all_its_values(actors: Actors, world: FakeBroker) -> None:
    found = copies(actors, "/groups/g/billing/")

    assert lines(found)[0].endswith(
        "-g billing -s false -m false -d false -q 2 -r 3 -i 0 -w 1 -a true"
    )


@pytest.mark.parametrize(
    ("mode", "to"),
    [
        ("earliest", "0"),
        ("latest", "now"),
        ("timestamp&timestamp_ms=1700000000000", "1700000000000"),
    ],
)
def test_a_reset_by_time_has_a_line(mode: str, to: str, actors: Actors, world: FakeBroker) -> None:
    (line,) = lines(copies(actors, PREVIEW + mode))

    assert line.endswith(f"-g billing -t Orders -s {to} -f true")


@pytest.mark.parametrize("mode", ["shift&shift=1", "offset&offset=1", "earliest&queue=broker-a:0"])
def test_a_reset_that_mqadmin_cannot_do_has_no_command_line(
    mode: str, actors: Actors, world: FakeBroker
) -> None:
    found = copies(actors, PREVIEW + mode)

    assert lines(found) == []
    assert json.loads(found["JSON"])["offsets"]["broker-a:0"]["old"] == "0"


@pytest.mark.parametrize(
    ("url", "key", "value"),
    [
        ("/topics/t/Orders/", "name", "Orders"),
        ("/groups/g/billing/", "name", "billing"),
        (MESSAGE, "topic", "Orders"),
    ],
)
def test_the_curl_command_and_its_python_request_what_the_page_shows(
    url: str,
    key: str,
    value: str,
    actors: Actors,
    world: FakeBroker,
    client: Client,
    reader_account: User,
    settings: LazySettings,
) -> None:
    _token, text = new_token(reader_account, "copied", ["*:read"], 1, now_ms())
    found = copies(actors, url)

    _curl, _option, header, address = shlex.split(found["curl"])
    name, _colon, message = header.replace("$TREBUCHET_TOKEN", text).partition(": ")
    path = address.removeprefix(settings.TREBUCHET_URL)
    answer = client.get(path, headers={name: message})

    assert answer.status_code == 200
    assert answer.json()[key] == value
    assert json.dumps(address) in found["Python"]
    ast.parse(found["Python"])


def test_a_group_without_a_configuration_has_nothing_to_create(
    actors: Actors, world: FakeBroker
) -> None:
    del world.group_configs["billing"]

    found = copies(actors, reverse("groups:detail", args=["billing"]))

    assert not any("updateSubGroup" in line for line in lines(found))


def test_a_shell_reads_a_line_as_intended(settings) -> None:
    settings.TREBUCHET_NAMESRV = ["10.0.0.1:9876", "10.0.0.2:9876"]

    line = mqadmin("topicStatus", {"t": "%RETRY%a|b; rm"})

    assert shlex.split(line) == [
        "mqadmin",
        "topicStatus",
        "-n",
        "10.0.0.1:9876;10.0.0.2:9876",
        "-t",
        "%RETRY%a|b; rm",
    ]
    assert "'10.0.0.1:9876;10.0.0.2:9876'" in line
