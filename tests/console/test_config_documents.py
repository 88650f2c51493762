"""Portable configuration: YAML and JSON import and export, drift, `manage.py config`."""

from __future__ import annotations

import json
from dataclasses import replace
from io import StringIO
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from django.core.management import CommandError, call_command
from django.urls import reverse

from console.broker.files.changing import read
from console.broker.files.documents import (
    WantedEntry,
    drift_of,
    like,
    plans_of,
    read_document,
    yaml_entry,
    yaml_of,
)
from console.broker.files.entries import FileProblemsError
from console.broker.files.management.commands.config import Command
from console.broker.files.schema import GROUP_KEYS, TOPIC_KEYS, group_config, topic_config
from console.gateway.access import gateway
from console.gateway.answers import BrokerNode
from console.gateway.files import ConfigFile
from console.people.audit.models import Entry
from tests.console.plans import token_on

if TYPE_CHECKING:
    from pathlib import Path
    from random import Random

    from console.gateway.fakes.broker import FakeBroker
    from tests.console.conftest import Actors

pytestmark = pytest.mark.django_db

ORDERS = {
    "order": False,
    "perm": 6,
    "readQueueNums": 4,
    "topicFilterType": "SINGLE_TAG",
    "topicSysFlag": 0,
    "writeQueueNums": 4,
}
YAML = """\
trebuchet: 1
topics:
  Orders: {readQueueNums: 4, writeQueueNums: 4, perm: 4}
  Late: {readQueueNums: 1, writeQueueNums: 1}
groups:
  billing:
"""


@pytest.fixture
def orders(brokers: FakeBroker) -> FakeBroker:
    brokers.add_topic("Orders", queue_nums=4)
    brokers.add_topic("Bills", queue_nums=2)
    brokers.add_topic("%RETRY%billing", queue_nums=1)
    brokers.add_topic("TBW102", queue_nums=8)
    brokers.add_group("billing")
    return brokers


@pytest.fixture
def second(orders: FakeBroker) -> FakeBroker:
    """A second master that only has Orders, with other values."""
    orders.strangers.append(BrokerNode("DefaultCluster", "broker-b", 0, "127.0.0.1:10921"))
    table = {"Orders": {**ORDERS, "perm": 4}, "broker-b": ORDERS}
    orders.other_files["broker-b"] = {ConfigFile.TOPICS: {"topicConfigTable": table}}
    return orders


def config(*arguments: str) -> tuple[str, int]:
    """Run the command as a shell does; return its output and exit code."""
    out = StringIO()
    try:
        call_command(Command(stdout=out, stderr=out), *arguments)
    except CommandError as error:
        return f"{out.getvalue()}{error}", error.returncode
    except SystemExit as end:
        return out.getvalue(), int(str(end.code))
    return out.getvalue(), 0


def changes_of(text: str, *broker_names: str, is_whole: bool = False) -> dict[str, Any]:
    plans = plans_of(read_document(text), broker_names or ["broker-a"], is_whole=is_whole)
    return {plan.name: plan.wanted for plan in plans}


def test_a_file_changes_only_the_values_it_names(orders: FakeBroker) -> None:
    found = changes_of(YAML)

    assert found == {
        "broker-a · topics.json": {
            "Orders": {**ORDERS, "perm": 4},
            "Late": {**ORDERS, "readQueueNums": 1, "writeQueueNums": 1},
        }
    }


def test_a_complete_file_removes_unnamed_entries_except_those_created_by_brokers(
    orders: FakeBroker,
) -> None:
    found = changes_of(YAML, is_whole=True)

    assert [
        name for name, expected in found["broker-a · topics.json"].items() if expected is None
    ] == ["Bills"]


def test_an_entry_may_apply_to_some_brokers_and_differ_on_one(second: FakeBroker) -> None:
    text = """\
trebuchet: 1
topics:
  Orders: {readQueueNums: 4, writeQueueNums: 4, at: {broker-b: {perm: 2}}}
  Late: {readQueueNums: 1, writeQueueNums: 1, brokers: [broker-b]}
"""
    found = changes_of(text, "broker-a", "broker-b")

    assert list(found) == ["broker-b · topics.json"]
    expected = found["broker-b · topics.json"]
    assert (expected["Orders"]["perm"], sorted(expected)) == (2, ["Late", "Orders"])


def test_a_real_brokers_files_are_taken_over(orders: FakeBroker) -> None:
    text = """{
\t"dataVersion":{
\t\t"counter":269,
\t\t"timestamp":1795252759675
\t},
\t"topicConfigTable":{
\t\t"TopicTest":{
\t\t\t"order":false,
\t\t\t"perm":6,
\t\t\t"readQueueNums":8,
\t\t\t"topicFilterType":"SINGLE_TAG",
\t\t\t"topicName":"TopicTest",
\t\t\t"topicSysFlag":0,
\t\t\t"writeQueueNums":8
\t\t},
\t\t"TBW102":{"perm":7,"readQueueNums":8,"writeQueueNums":8},
\t\t"%RETRY%x":{"perm":6,"readQueueNums":1,"writeQueueNums":1}
\t}
}"""
    offsets = '{\n\t"offsetTable":{\n\t\t"Orders@billing":{0:25,1:24\n\t\t}\n\t}\n}'
    orders.offsets["billing", "Orders", 2] = 7

    assert list(changes_of(text)["broker-a · topics.json"]) == ["TopicTest"]
    assert changes_of(offsets) == {
        "broker-a · consumerOffset.json": {"Orders@billing": {"0": "25", "1": "24", "2": "7"}}
    }


@pytest.mark.parametrize(
    ("text", "message", "line"),
    [
        ("topics: {}", "The file must start with “trebuchet: 1”", 1),
        ("trebuchet: 1\nqueues: {}", "Unknown section queues.", 2),
        ("trebuchet: 1\ntopics:\n  A: [", "isn't valid YAML", 3),
        ("trebuchet: 1\ntopics:\n  A: {readQueueNums: 1}", "A is missing writeQueueNums.", 3),
        ("trebuchet: 1\ngroups:\n  g: {retryTimes: 1}", "g has no retryTimes.", 3),
        ("trebuchet: 1\ngroups:\n  g: {retryMaxTimes: yes}", "retryMaxTimes must be a whole", 3),
        ("trebuchet: 1\ngroups:\n  1: {}", "Put the name in quotes", None),
        ("trebuchet: 1\ngroups:\n  g: {brokers: broker-a}", "brokers must be a list of names", 3),
        ("trebuchet: 1\ngroups:\n  g: {at: [1]}", "at must map broker names to values", 3),
        ("trebuchet: 1\ntopics:\n  TBW102: {}", "is created by the brokers themselves", 3),
        ("trebuchet: 1\ntopics: &a {}\ngroups: *a", "aliases", None),
        ("trebuchet: 1\ntopics: !!python/object:os.system {}", "isn't valid YAML", 2),
        ('{"offsetTable":{1:48,"Orders":48}}', "named by topic and group", 1),
        ('{"offsetTable":{1:-48}}', "Level 1: the offset must be a whole number", 1),
        ("trebuchet: 1\nfilters:\n  Orders: {expression: a > 1}", "topic@group", 3),
        ("trebuchet: 1\nfilters:\n  O@g: {}", "O@g is missing expression.", 3),
        ("trebuchet: 1\nfilters:\n  O@g: {expression: a, dead: yes}", "O@g has no dead.", 3),
        ("trebuchet: 1\ndelays: 7", "must map broker names to offsets by level", 2),
        ("trebuchet: 1\ndelays:\n  broker-a: 7", "must map broker names to offsets", 3),
        (
            "trebuchet: 1\ndelays:\n  broker-a: {0: 7}",
            "A delay level is a number, 1 or greater",
            None,
        ),
        ("trebuchet: 1\ndelays:\n  broker-a: {3: soon}", "Level 3: the offset must be", None),
        ('{"other":{}}', "must have an object topicConfigTable", 1),
    ],
)
def test_an_invalid_file_is_rejected_with_its_line(
    brokers: FakeBroker, text: str, message: str, line: int | None
) -> None:
    with pytest.raises(FileProblemsError) as caught:
        read_document(text)

    problem = caught.value.problems[0]
    assert message in problem.text
    if line is not None:
        assert problem.line == line


def test_a_file_for_other_brokers_is_rejected(orders: FakeBroker) -> None:
    text = "trebuchet: 1\ngroups:\n  g: {brokers: [broker-z]}\n"

    with pytest.raises(FileProblemsError, match="for other brokers: broker-z"):
        changes_of(text)


def test_importing_an_export_changes_nothing(brokers: FakeBroker, rng: Random) -> None:
    for number in range(40):
        topic = {key.name: value_for(key, rng) for key in TOPIC_KEYS}
        group = {key.name: value_for(key, rng) for key in GROUP_KEYS}
        brokers.topic_configs[f"T{number}"] = topic_config(f"T{number}", topic)
        brokers.group_configs[f"{number}"] = group_config(f"{number}", group)

    text = yaml_of(["broker-a"])

    assert changes_of(text, is_whole=True) == {}
    assert len(yaml.safe_load(text)["topics"]) == 40


def value_for(key: Any, rng: Random) -> Any:
    if key.kind is bool:
        return rng.random() < 0.5
    return rng.choice(key.choices) if key.choices else rng.randint(key.low, key.high)


def test_an_export_shows_differences_between_brokers() -> None:
    other = {**ORDERS, "perm": 4}

    found = yaml_entry(ConfigFile.TOPICS, {"a": ORDERS, "b": other, "c": ORDERS, "d": None})

    assert found == {
        "readQueueNums": 4,
        "writeQueueNums": 4,
        "brokers": ["a", "b", "c"],
        "at": {"b": {"perm": 4}},
    }
    expected = WantedEntry({**ORDERS}, tuple(found["brokers"]), found["at"])
    assert [expected.on(name) for name in "abcd"] == [ORDERS, other, ORDERS, None]


def test_the_broker_ends_up_with_the_planned_file(
    orders: FakeBroker, tmp_path: Path, rng: Random
) -> None:
    file = tmp_path / "wanted.yaml"
    for _ in range(10):
        names = rng.sample(["Orders", "Bills", "Late", "Later"], k=3)
        topics = {
            name: {"readQueueNums": 8, "writeQueueNums": 8, "perm": rng.choice([2, 4, 6])}
            for name in names
        }
        file.write_text(yaml.safe_dump({"trebuchet": 1, "topics": topics}))
        plans = plans_of(read_document(file.read_text()), ["broker-a"], is_whole=True)

        text, code = config("apply", str(file), "--whole", "--accept-costs")

        assert code == 0, text
        now = read("broker-a", ConfigFile.TOPICS)
        for plan in plans:
            assert {name: now.get(name) for name in plan.wanted} == plan.wanted
        assert config("plan", str(file), "--whole") == ("no differences\n", 0)


def test_drift_names_missing_and_different_values(second: FakeBroker) -> None:
    found = {name: read(name, ConfigFile.TOPICS) for name in ("broker-a", "broker-b")}

    drifts = drift_of(ConfigFile.TOPICS, found)

    assert [(each.name, each.missing, each.rows) for each in drifts] == [
        ("Bills", ("broker-b",), ()),
        ("Orders", (), (("perm", (6, 4)),)),
    ]
    (plan,) = like("broker-a", ConfigFile.TOPICS, found, is_whole=False)
    assert plan.name == "broker-b · topics.json"
    assert {name: (plan.wanted[name] or {})["perm"] for name in plan.wanted} == {
        "Bills": 6,
        "Orders": 6,
    }
    (one,) = like("broker-b", ConfigFile.TOPICS, found, name="Orders", is_whole=True)
    assert list(one.wanted) == ["Orders"]


def test_the_drift_page_links_to_a_plan(actors: Actors, second: FakeBroker) -> None:
    page = actors.admin.get(reverse("files:drift"))
    plan = actors.admin.get(reverse("files:alike", args=["broker-a", "topics.json"]))

    assert "missing on broker-b" in page.content.decode()
    assert "2 entries differ" in page.content.decode()
    assert [each.plan.name for each in plan.context["shown"]] == ["broker-b · topics.json"]


def test_an_upload_is_previewed_applied_and_each_file_undone(
    actors: Actors, orders: FakeBroker, tmp_path: Path
) -> None:
    file = tmp_path / "wanted.yaml"
    file.write_text(YAML.replace("  billing:\n", "  billing: {retryMaxTimes: 3}\n"))
    url = reverse("files:import")
    with file.open("rb") as upload:
        plan = actors.admin.post(url, {"document": upload, "broker_names": ["broker-a"]})

    actors.admin.post(url, {"token": token_on(plan), "reason": "from Git"})

    assert orders.topic_configs["Orders"].perm == 4
    assert orders.group_configs["billing"].retry_max_times == 3
    entries = Entry.objects.order_by("pk")
    assert [(each.subject, each.remark) for each in entries] == [
        ("broker-a · topics.json", "from Git"),
        ("broker-a · subscriptionGroup.json", "from Git"),
    ]
    actors.admin.post(reverse("files:undo", args=[entries[1].pk]))
    assert orders.group_configs["billing"].retry_max_times == 16


def test_an_invalid_import_is_explained_and_keeps_its_text(
    actors: Actors, orders: FakeBroker
) -> None:
    url = reverse("files:import")
    empty = actors.admin.post(url, {"broker_names": ["broker-a"]})
    wrong = actors.admin.post(url, {"broker_names": ["broker-a"], "text": "topics: {}"})

    assert (empty.status_code, wrong.status_code) == (422, 422)
    assert "Choose a file" in empty.content.decode()
    assert "topics: {}" in wrong.content.decode()


def test_the_pages_export_equals_the_commands(
    actors: Actors, orders: FakeBroker, tmp_path: Path
) -> None:
    answer = actors.admin.get(reverse("files:export"))
    config("export", "--output", str(tmp_path / "now.yaml"))

    assert answer["content-disposition"] == 'attachment; filename="trebuchet.yaml"'
    assert answer.content.decode() == config("export")[0] == (tmp_path / "now.yaml").read_text()


def test_a_plan_with_differences_exits_with_2(orders: FakeBroker, tmp_path: Path) -> None:
    file = tmp_path / "wanted.yaml"
    file.write_text(YAML)

    text, code = config("plan", str(file))
    as_json, json_code = config("plan", str(file), "--json")

    assert (code, json_code) == (2, 2)
    assert text.splitlines()[:3] == [
        "broker-a · topics.json: 1 change, 1 create",
        "  ~ Orders",
        "      perm: 6 -> 4",
    ]
    (plan,) = json.loads(as_json)["plans"]
    assert plan["changes"][0]["before"] == ORDERS
    assert orders.topic_configs["Orders"].perm == 6


def test_changes_that_lose_messages_need_a_request(orders: FakeBroker, tmp_path: Path) -> None:
    orders.put("Bills", 0, 1, 2)
    file = tmp_path / "wanted.yaml"
    file.write_text(YAML)

    refused, code = config("apply", str(file), "--whole")

    assert (code, "Bills" in orders.topic_configs) == (1, True)
    assert "! 1 topic will be deleted from broker-a, with 2 messages: Bills." in refused
    text, code = config("apply", str(file), "--whole", "--accept-costs", "--reason", "cleaning")
    assert (code, "Bills" in orders.topic_configs) == (0, False)
    entry = Entry.objects.get()
    assert (entry.remark, entry.outcome) == ("cleaning", "done")
    assert entry.actor_name.startswith("command line")
    assert f"audit entry {entry.pk}" in text


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["plan", "/nowhere.yaml"], "Can't read /nowhere.yaml"),
        (["plan", "/dev/null"], "must start with"),
        (["drift", "--broker", "broker-z"], "No master named broker-z"),
    ],
)
def test_an_unanswerable_question_exits_with_1(
    orders: FakeBroker, arguments: list[str], text: str
) -> None:
    found, code = config(*arguments)

    assert code == 1
    assert text in found


def test_wrong_usage_does_not_look_like_a_difference(
    orders: FakeBroker, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        Command().run_from_argv(["manage.py", "config", "plan"])

    assert ended.value.code == 1
    assert "FILE" in capsys.readouterr().err


def test_the_drift_command_exits_with_2_and_prints_json_on_demand(second: FakeBroker) -> None:
    text, code = config("drift")
    as_json, _code = config("drift", "--json")
    alone, alone_code = config("drift", "--broker", "broker-a")

    assert (code, alone_code) == (2, 0)
    assert "    perm: broker-a=6 broker-b=4" in text
    assert json.loads(as_json)["files"]["topics.json"][0] == {
        "entry": "Bills",
        "missing": ["broker-b"],
        "values": {},
    }
    assert "topics.json: identical" in alone


def test_a_concurrent_change_is_drift_again(orders: FakeBroker, tmp_path: Path) -> None:
    file = tmp_path / "now.yaml"
    config("export", "--output", str(file))
    assert config("plan", str(file), "--whole")[1] == 0

    orders.topic_configs["Orders"] = replace(orders.topic_configs["Orders"], perm=4)

    assert config("plan", str(file), "--whole")[1] == 2


EXPRESSION = {"expression": "price > 10", "expressionType": "SQL92"}
OF_GROUP = {"groupFilterData": {"billing": EXPRESSION}, "topic": "Orders"}


@pytest.fixture
def filtered(orders: FakeBroker) -> FakeBroker:
    """A group that reads by an expression, and two levels that have delivered."""
    orders.other_tables[ConfigFile.FILTERS] = {"Orders": OF_GROUP}
    orders.other_tables[ConfigFile.DELAYS] = {"2": 5, "10": 7}
    return orders


def test_filters_are_copied_and_delay_offsets_on_demand(filtered: FakeBroker) -> None:
    usual, with_delays = yaml_of(["broker-a"]), yaml_of(["broker-a"], with_delays=True)

    found = yaml.safe_load(with_delays)
    assert found["filters"] == {"Orders@billing": {"expression": "price > 10"}}
    assert found["delays"] == {"broker-a": {2: 5, 10: 7}}
    assert "delays" not in yaml.safe_load(usual)
    assert changes_of(usual) == changes_of(with_delays) == {}
    assert changes_of(with_delays, is_whole=True) == {}


def test_a_cluster_without_filters_has_no_filter_section(orders: FakeBroker) -> None:
    assert "filters" not in yaml.safe_load(yaml_of(["broker-a"]))


def test_a_file_changes_filters_and_delay_offsets(filtered: FakeBroker) -> None:
    text = """\
trebuchet: 1
filters:
  Orders@audit: {expression: price > 20}
delays:
  broker-a: {2: 6}
"""

    assert changes_of(text) == {
        "broker-a · consumerFilter.json": {
            "Orders@audit": {**EXPRESSION, "expression": "price > 20"}
        },
        "broker-a · delayOffset.json": {"2": {"offset": "6"}},
    }
    whole = changes_of(text, is_whole=True)
    assert whole["broker-a · consumerFilter.json"]["Orders@billing"] is None
    assert whole["broker-a · delayOffset.json"] == {"2": {"offset": "6"}}, "no level goes"


def test_one_brokers_delay_offsets_leave_the_others_alone(second: FakeBroker) -> None:
    second.other_tables[ConfigFile.DELAYS] = {"2": 5}

    found = changes_of("trebuchet: 1\ndelays:\n  broker-a: {2: 6}\n", "broker-a", "broker-b")

    assert list(found) == ["broker-a · delayOffset.json"]


def test_a_real_brokers_delay_offsets_and_filters_are_taken_over(orders: FakeBroker) -> None:
    orders.other_tables[ConfigFile.DELAYS] = {"2": 5, "3": 1}
    delays = '{\n\t"offsetTable":{1:48,2:5\n\t}\n}'
    kept = '"bornTime":1,"clientVersion":2,"consumerGroup":"g","dead":true,"deadTime":3,"topic":"T"'
    filters = (
        '{"filterDataByTopic":{"T":{"groupFilterData":{"g":{"bloomFilterData":{"bitNum":8,'
        f'"bitPos":[1]}},"expression":"a > 1","expressionType":"SQL92",{kept}}}}},"topic":"T"}}}}}}'
    )

    assert changes_of(delays) == {"broker-a · delayOffset.json": {"1": {"offset": "48"}}}
    assert changes_of(filters) == {
        "broker-a · consumerFilter.json": {"T@g": {**EXPRESSION, "expression": "a > 1"}}
    }


def test_different_filters_between_masters_are_drift_but_offsets_are_not(
    filtered: FakeBroker, second: FakeBroker
) -> None:
    other = {"groupFilterData": {"billing": {**EXPRESSION, "expression": "price > 20"}}}
    second.other_files["broker-b"][ConfigFile.FILTERS] = {"filterDataByTopic": {"Orders": other}}
    second.other_files["broker-b"][ConfigFile.DELAYS] = {"offsetTable": {"2": 99}}

    text, code = config("drift")

    assert code == 2
    assert '    expression: broker-a="price > 10" broker-b="price > 20"' in text
    assert "delayOffset" not in text


def test_a_broker_that_does_not_report_its_filters_is_left_out(
    filtered: FakeBroker, second: FakeBroker, monkeypatch: pytest.MonkeyPatch, actors: Actors
) -> None:
    read_them = gateway().files.read

    def without_filters(file: ConfigFile, broker_names: Any) -> Any:
        found = read_them(file, broker_names)
        if file is ConfigFile.FILTERS and "broker-b" in found:
            found["broker-b"] = None
        return found

    monkeypatch.setattr(gateway().files, "read", without_filters)

    exported = yaml_of(["broker-a", "broker-b"])
    as_json = json.loads(config("drift", "--json")[0])

    filters = yaml.safe_load(exported)["filters"]
    assert filters["Orders@billing"]["brokers"] == ["broker-a"]
    assert changes_of(exported, "broker-a", "broker-b") == {}
    assert as_json["files"]["consumerFilter.json"] == []
    assert actors.admin.get(reverse("files:drift")).status_code == 200
    refused = actors.admin.get(reverse("files:alike", args=["broker-b", "consumerFilter.json"]))
    assert refused.status_code == 404


def test_the_command_previews_and_applies_filters_and_delay_offsets(
    filtered: FakeBroker, tmp_path: Path
) -> None:
    filtered.add_topic("SCHEDULE_TOPIC_XXXX", queue_nums=2)
    filtered.put("SCHEDULE_TOPIC_XXXX", 1, *range(9))
    file = tmp_path / "now.yaml"
    config("export", "--delays", "--output", str(file))
    file.write_text(file.read_text().replace("price > 10", "price > 20").replace("2: 5", "2: 8"))

    planned, differs = config("plan", str(file))
    refused = config("apply", str(file))
    done, code = config("apply", str(file), "--accept-costs", "--reason", "release")

    assert differs == 2
    assert "! Level 2: 3 delayed messages will be skipped and never delivered." in planned
    assert "! Orders@billing: no consumer is subscribed now." in planned
    assert refused[1] == 1
    assert (done.count("applied: "), code) == (2, 0)
    assert filtered.other_tables[ConfigFile.DELAYS]["2"] == 8
    table = filtered.other_tables[ConfigFile.FILTERS]["Orders"]["groupFilterData"]
    assert table["billing"]["expression"] == "price > 20"
    assert {each.remark for each in Entry.objects.all()} == {"release"}
    assert config("plan", str(file))[1] == 0


def test_an_invalid_expression_in_a_file_is_rejected_before_anything_is_done(
    filtered: FakeBroker, tmp_path: Path
) -> None:
    file = tmp_path / "now.yaml"
    text = "trebuchet: 1\ngroups:\n  new: {}\nfilters:\n  Orders@billing: {expression: price >}\n"
    file.write_text(text)

    message, code = config("apply", str(file), "--accept-costs")

    assert code == 1
    assert "at character 8" in message
    assert "new" not in filtered.group_configs
