from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from broker_core.config.limits import LIMITS, LimitsConfig
from broker_core.delivery.sql_filter import compile_filter
from broker_core.errors import StoreError
from broker_core.formats.bloom_filter import BloomFilter
from broker_core.message.subscription import SubscriptionData
from broker_core.metadata.consumer_filters import ConsumerFilters, TopicFilters
from broker_core.metadata.document import Document
from broker_core.storage import FileStorage
from tests.support.clock import ManualClock

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

DAY_MS = 24 * 3600 * 1000


def filters_in(
    directory: Path,
    clock: ManualClock,
    newest_stored_ms: Callable[[], int] = lambda: 0,
    limits: LimitsConfig = LIMITS,
) -> ConsumerFilters[Any]:
    document = Document(FileStorage(), directory / "consumerFilter.json")
    bloom = BloomFilter(20, 32)
    return ConsumerFilters(
        compile_filter, bloom, lambda: DAY_MS, clock, document, newest_stored_ms, limits
    )


def sql(topic: str, text: str, version: int = 1) -> SubscriptionData:
    return SubscriptionData(
        topic=topic, sub_string=text, expression_type="SQL92", sub_version=version
    )


def text_of(filters: ConsumerFilters[Any], topic: str = "T", group: str = "g") -> str | None:
    found = filters.find(topic, group)
    return None if found is None else found.expression.text


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def filters(tmp_path: Path, clock: ManualClock) -> ConsumerFilters[Any]:
    return filters_in(tmp_path, clock)


def test_the_file_is_rocketmqs(tmp_path, clock, filters):
    filters.register("group", [sql("topic", "a = 1", 7)])

    filters.persist()

    now = clock.now_ms()
    assert (tmp_path / "consumerFilter.json").read_text() == (
        '{\n\t"filterDataByTopic":{\n\t\t"topic":{\n\t\t\t"groupFilterData":{\n\t\t\t\t"group":{'
        '\n\t\t\t\t\t"bloomFilterData":{\n\t\t\t\t\t\t"bitNum":112,\n\t\t\t\t\t\t"bitPos":[79,21,21]'
        f'\n\t\t\t\t\t}},\n\t\t\t\t\t"bornTime":{now},\n\t\t\t\t\t"clientVersion":7,'
        '\n\t\t\t\t\t"consumerGroup":"group",\n\t\t\t\t\t"dead":false,\n\t\t\t\t\t"deadTime":0,'
        '\n\t\t\t\t\t"expression":"a = 1",\n\t\t\t\t\t"expressionType":"SQL92",'
        '\n\t\t\t\t\t"topic":"topic"\n\t\t\t\t}\n\t\t\t},\n\t\t\t"topic":"topic"\n\t\t}\n\t}\n}'
    )


def test_tag_subscriptions_and_empty_ones_have_no_filter(filters):
    filters.register("g", [SubscriptionData(topic="T", sub_string="A || B"), sql("U", "")])

    assert filters.find("T", "g") is None
    assert filters.find("U", "g") is None


def test_a_newer_subscription_replaces_the_filter_but_an_older_one_does_not(filters):
    filters.register("g", [sql("T", "a = 1", 5)])

    filters.register("g", [sql("T", "a = 2", 4)])
    assert text_of(filters) == "a = 1"
    filters.register("g", [sql("T", "a = 3", 6)])

    assert text_of(filters) == "a = 3"
    assert filters.find("T", "g").client_version == 6


def test_an_expression_subscribed_again_keeps_its_birth_time(clock, filters):
    filters.register("g", [sql("T", "a = 1", 5)])
    born = clock.now_ms()
    clock.advance_ms(1000)

    filters.register("g", [sql("T", "a = 1", 6)])

    assert filters.find("T", "g").born_time == born
    assert filters.find("T", "g").client_version == 6


def test_a_newer_expression_that_does_not_compile_removes_the_filter(filters):
    filters.register("g", [sql("T", "a = 1", 5)])

    filters.register("g", [sql("T", "a != 1", 6)])

    assert filters.find("T", "g") is None


def test_a_filter_dies_and_revives_with_its_subscription_or_group(clock, filters):
    filters.register("g", [sql("T", "a = 1"), sql("U", "b = 1")])
    clock.advance_ms(1000)

    filters.register("g", [sql("T", "a = 1")])
    assert not filters.find("T", "g").is_dead
    assert filters.find("U", "g").is_dead
    filters.unregister("g")
    assert filters.find("T", "g").is_dead

    filters.register("g", [sql("T", "a = 1"), sql("U", "b = 1", 2)])
    assert not filters.find("T", "g").is_dead
    assert not filters.find("U", "g").is_dead


def test_a_dead_filter_is_kept_for_a_day(clock, filters):
    filters.register("g", [sql("T", "a = 1")])
    clock.advance_ms(1000)
    filters.unregister("g")

    clock.advance_ms(DAY_MS - 1)
    filters.persist()
    assert filters.find("T", "g") is not None
    clock.advance_ms(1)
    filters.persist()

    assert filters.find("T", "g") is None
    assert filters.document() == {"filterDataByTopic": {}}


def test_filters_survive_a_restart_and_are_dead_until_a_heartbeat(tmp_path, clock, filters):
    filters.register("g", [sql("T", "a = 1", 5)])
    filters.persist()
    clock.advance_ms(60_000)

    again = filters_in(tmp_path, clock)
    again.load()

    assert text_of(again) == "a = 1"
    found = again.find("T", "g")
    assert found is not None
    assert found.dead_time == clock.now_ms() - 30_000
    again.register("g", [sql("T", "a = 1", 5)])
    assert not found.is_dead


def test_bits_of_another_size_invalidate_the_file_and_a_bad_expression_its_own_entry(
    tmp_path, clock, filters
):
    filters.register("g", [sql("T", "a = 1"), sql("U", "b = 1")])
    filters.persist()
    path = tmp_path / "consumerFilter.json"
    table = json.loads(path.read_text())
    data = table["filterDataByTopic"]["T"]["groupFilterData"]["g"]

    data["expression"] = "a != 1"
    path.write_text(json.dumps(table))
    again = filters_in(tmp_path, clock)
    again.load()
    assert (again.find("T", "g"), text_of(again, "U")) == (None, "b = 1")

    data["bloomFilterData"]["bitNum"] = 216
    path.write_text(json.dumps(table))
    voided = filters_in(tmp_path, clock)
    voided.load()
    assert voided.find("U", "g") is None


def test_a_file_with_an_unexpected_structure_is_rejected_by_name(tmp_path, clock):
    (tmp_path / "consumerFilter.json").write_text('{"filterDataByTopic":{"T":7}}')

    with pytest.raises(StoreError, match=r"consumerFilter\.json"):
        filters_in(tmp_path, clock).load()


def test_a_filters_bits_match_the_file(tmp_path, clock, filters):
    filters.register("group", [sql("topic", "a = 1", 7)])

    (one,) = filters.of_topic("topic")
    assert one.bit_pos == [79, 21, 21]
    assert one.bit_map == ((1 << 79) | (1 << 21)).to_bytes(14, "little")
    filters.persist()
    loaded = filters_in(tmp_path, clock)
    loaded.load()
    assert [other.bit_map for other in loaded.of_topic("topic")] == [one.bit_map]
    assert list(loaded.of_topic("other")) == []


def test_a_removed_groups_filter_still_has_its_bits_in_bitmaps(filters):
    filters.register("group", [sql("topic", "a = 1", 7)])
    filters.unregister("group")

    assert [one.consumer_group for one in filters.of_topic("topic")] == ["group"]


def test_no_filter_is_older_than_messages_stored_before_it(tmp_path, clock):
    filters = filters_in(tmp_path, clock, lambda: clock.now_ms() + 5000)

    filters.register("group", [sql("topic", "a = 1", 7)])

    registered = filters.find("topic", "group")
    assert registered is not None
    assert registered.born_time == clock.now_ms() + 5000


def test_an_administrators_expression_applies_until_a_newer_subscription(clock, filters):
    filters.register("g", [sql("T", "a > 1", 5)])
    clock.advance_ms(1_000)

    filters.put("g", "T", "SQL92", "a > 2", 5)
    put = filters.find("T", "g")
    filters.register("g", [sql("T", "a > 1", 5)])

    assert (put.text, put.client_version, put.born_time) == ("a > 2", 5, clock.now_ms())
    assert not put.is_dead
    assert text_of(filters) == "a > 2"
    filters.register("g", [sql("T", "a > 1", 6)])
    assert text_of(filters) == "a > 1"


def test_an_expression_that_does_not_compile_changes_nothing(filters):
    filters.register("g", [sql("T", "a > 1", 5)])

    with pytest.raises(ValueError, match="at character"):
        filters.put("g", "T", "SQL92", "a >", 5)
    with pytest.raises(ValueError, match="unknown"):
        filters.put("g", "T", "TAG", "a", 5)

    assert text_of(filters) == "a > 1"


def test_a_filter_without_a_subscription_is_dead_and_revives_with_one(clock, filters):
    filters.put("g", "T", "SQL92", "a > 1", None)
    made = filters.find("T", "g")

    assert (made.is_dead, made.client_version) == (True, 0)
    filters.register("g", [sql("T", "a > 1", 3)])
    assert filters.find("T", "g") is made
    assert (made.is_dead, made.client_version) == (False, 3)


def test_a_filter_stored_unchanged_keeps_its_birth_time(clock, filters):
    filters.register("g", [sql("T", "a > 1", 5)])
    born = filters.find("T", "g").born_time
    clock.advance_ms(1_000)

    filters.put("g", "T", "SQL92", "a > 1", 7)

    assert (filters.find("T", "g").born_time, filters.find("T", "g").client_version) == (born, 7)


def test_the_number_of_filters_is_limited(tmp_path, clock):
    filters = filters_in(tmp_path, clock, limits=LimitsConfig(consumer_filter_nums_max=100))
    for number in range(100):
        filters.put(f"g{number}", "T", "SQL92", "a > 1", None)

    with pytest.raises(ValueError, match="consumerFilterNumsMax=100"):
        filters.put("one-more", "T", "SQL92", "a > 1", None)

    filters.put("g0", "T", "SQL92", "a > 2", None)
    assert text_of(filters, group="g0") == "a > 2"


def test_a_dropped_filter_returns_with_the_next_heartbeat(filters):
    filters.register("g", [sql("T", "a > 1", 5)])

    assert filters.drop("g", "T")
    assert not filters.drop("g", "T")
    assert filters.document() == {"filterDataByTopic": {}}
    filters.register("g", [sql("T", "a > 1", 5)])
    assert text_of(filters) == "a > 1"


def test_a_slave_takes_over_what_an_administrator_changed_on_its_master(tmp_path, clock, filters):
    slave = filters_in(tmp_path / "slave", clock)
    for each in (filters, slave):
        each.register("g", [sql("T", "a > 1", 5)])
    filters.put("g", "T", "SQL92", "a > 2", 5)

    slave.follow(told_by(filters))

    assert text_of(slave) == "a > 2"


def told_by(master: ConsumerFilters[Any]) -> dict[str, TopicFilters]:
    return msgspec.convert(master.document()["filterDataByTopic"], dict[str, TopicFilters])


def test_a_slave_drops_data_deleted_on_its_master(tmp_path, clock, filters):
    slave = filters_in(tmp_path / "slave", clock)
    filters.register("g", [sql("T", "a > 1", 5)])
    slave.follow(told_by(filters))
    had = told_by(filters)["T"].group_filter_data.values()

    slave.follow_deletions(had)
    slave.follow_deletions(had)

    assert text_of(slave) is None
    assert slave.document() == {"filterDataByTopic": {}}


def test_a_slave_keeps_live_entries_and_those_that_members_resubscribed(tmp_path, clock, filters):
    slave = filters_in(tmp_path / "slave", clock)
    for group in ("anew", "alive"):
        filters.register(group, [sql("T", "a > 1", 5)])
    filters.unregister("alive")
    had = told_by(filters)["T"].group_filter_data.values()
    slave.register("anew", [sql("T", "a > 3", 6)])
    slave.register("alive", [sql("T", "a > 1", 5)])

    slave.follow_deletions(had)

    assert text_of(slave, group="anew") == "a > 3"
    assert text_of(slave, group="alive") == "a > 1"


async def test_a_failed_write_is_reported(filters, monkeypatch):
    filters.put("g", "T", "SQL92", "a > 1", None)

    def fail(*_args, **_more):
        raise OSError("no space")

    with monkeypatch.context() as patched:
        patched.setattr(Document, "write", fail)
        assert not await filters.persist_in_thread()
    assert await filters.persist_in_thread()
