from __future__ import annotations

from typing import TYPE_CHECKING

from broker_core.config.loading import build
from broker_core.message.subscription import SubscriptionGroupConfig
from broker_core.metadata.document import Document
from broker_core.metadata.subscription_groups import SubscriptionGroups
from broker_core.storage import FileStorage
from tests.support.clock import ManualClock

if TYPE_CHECKING:
    from pathlib import Path


def make_groups(directory: Path, **keys: str) -> SubscriptionGroups:
    configuration, errors = build(keys)
    assert not errors
    document = Document(FileStorage(), directory / "subscriptionGroup.json")
    groups = SubscriptionGroups(configuration.broker, ManualClock(), document)
    groups.load()
    return groups


def test_a_group_is_created_on_first_use_and_kept(tmp_path: Path) -> None:
    groups = make_groups(tmp_path)
    made = groups.find_or_create("g")
    groups.writer.write_now()

    assert made is not None
    assert made.retry_max_times == 16
    assert make_groups(tmp_path).find("g") == made


def test_without_automatic_creation_only_known_groups_consume(tmp_path: Path) -> None:
    groups = make_groups(tmp_path, autoCreateSubscriptionGroup="false")

    assert groups.find_or_create("g") is None
    assert groups.find_or_create("TOOLS_CONSUMER") is not None


def test_a_group_with_an_invalid_name_is_not_created(tmp_path: Path) -> None:
    assert make_groups(tmp_path).find_or_create("../g") is None


def test_a_group_is_changed_and_deleted(tmp_path: Path) -> None:
    groups = make_groups(tmp_path)
    groups.put(SubscriptionGroupConfig(group_name="g", consume_enable=False))
    groups.writer.write_now()

    found = make_groups(tmp_path).find("g")
    assert found is not None
    assert not found.consume_enable
    assert groups.delete("g")
    groups.writer.write_now()
    assert make_groups(tmp_path).find("g") is None


def test_a_stopped_group_consumes_again_after_a_restart(tmp_path: Path) -> None:
    groups = make_groups(tmp_path)
    groups.find_or_create("slow")
    groups.disable_consume("slow")
    groups.find_or_create("another")
    groups.writer.write_now()

    again = make_groups(tmp_path).find("slow")

    stopped = groups.find("slow")
    assert stopped is not None
    assert not stopped.consume_enable
    assert again is not None
    assert again.consume_enable


def test_a_stopped_group_consumes_when_it_is_reconfigured(tmp_path: Path) -> None:
    groups = make_groups(tmp_path)
    groups.find_or_create("slow")
    groups.disable_consume("slow")
    assert groups.is_stopped("slow")

    groups.put(SubscriptionGroupConfig(group_name="slow"))

    assert not groups.is_stopped("slow")
