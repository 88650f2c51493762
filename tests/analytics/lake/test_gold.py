"""Gold: its sums equal those of bronze, despite kills and errors in between."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import pytest
from hypothesis import Phase, given, settings, strategies as st

from analytics.lake.__main__ import main
from analytics.lake.gold import catch_up, differences
from analytics.lake.gold_tables import KEYS, KEYS_A_TOPIC, LATENCY, TRAFFIC
from analytics.lake.maintenance import maintain
from analytics.lake.repair import forget, rebuild, verify
from analytics.lake.rewriting import stored_files_of
from analytics.lake.tables import MESSAGES
from analytics.lake.writer import ArrowWriter
from tests.analytics.lake.lakes import Lake, traffic_of
from tests.analytics.store_builder import START_MS, StoreBuilder

if TYPE_CHECKING:
    from collections.abc import Iterable

    from analytics.lake.gold_tables import GoldTable
    from tests.analytics.store_builder import Stored

FILES_A_TIER_MAX = 3
DAY_MS = 86_400_000
FIRST_DAY = datetime.fromtimestamp(START_MS / 1000, UTC).date()
FAR = FIRST_DAY + timedelta(days=20)


@pytest.fixture
def builder(tmp_path: Path) -> StoreBuilder:
    return StoreBuilder(tmp_path / "store")


def lake_of(builder: StoreBuilder, *, batch_bytes: int = 1 << 26) -> Lake:
    return Lake(builder.root.parent / "lake", builder.root, batch_bytes=batch_bytes)


def put_days(builder: StoreBuilder, days: Iterable[int], count: int = 30) -> None:
    for day in days:
        for number in range(count):
            builder.put(
                f"topic-{number % 3}",
                queue_id=number % 2,
                body=b"x" * number,
                properties=b"KEYS\x01k%d all\x02UNIQ_KEY\x01U%d" % (number % 5, number),
                store_timestamp=START_MS + DAY_MS * day + 7_000 * number,
            )
    builder.write()


def keys_of(stored: Iterable[Stored], forgotten: str = "") -> Counter[tuple[str, str]]:
    """Count the messages of each topic and key that still have the key."""
    found: Counter[tuple[str, str]] = Counter()
    for one in stored:
        _, _, rest = one.properties.partition(b"KEYS\x01")
        keys = set(rest.partition(b"\x02")[0].decode().split())
        if forgotten not in keys:
            found.update((one.topic, key) for key in keys)
    return found


def keys_in(lake: Lake) -> dict[tuple[str, str], int]:
    rows = lake.query("SELECT topic, key, sum(messages) FROM gold.keys_day GROUP BY ALL")
    return {(topic, key): int(messages) for topic, key, messages in rows}


def files_a_day(lake: Lake, gold: GoldTable) -> Counter[int]:
    files = stored_files_of(gold.table.existing(lake.place))
    return Counter((file.day - FIRST_DAY).days for file in files)


def test_traffic_and_keys_match_the_messages(builder: StoreBuilder) -> None:
    put_days(builder, range(3))
    lake = lake_of(builder, batch_bytes=3000)
    while lake.ingest.batch() is not None:
        lake.catch_up()

    assert lake.traffic() == traffic_of(builder.stored)
    assert keys_in(lake) == keys_of(builder.stored)
    assert differences(lake.place, MESSAGES.existing(lake.place), ArrowWriter()) == []


def test_a_latency_is_in_its_bucket(builder: StoreBuilder) -> None:
    latencies = [0, 1, 31, 32, 33, 1000, 123_456, 86_400_000, -5]
    for each in latencies:
        builder.put(store_timestamp=START_MS, born_timestamp=START_MS - each)
    builder.write()
    lake = lake_of(builder)
    lake.take_all()
    lake.catch_up()

    rows = lake.query(
        "SELECT at_most_ms, messages, sum_ms, max_ms FROM gold.latency_minute ORDER BY sum_ms"
    )

    assert rows[0] == (-1, 1, -5, -5)
    assert [row[1:] for row in rows[1:] if row[1] == 1] == [
        (1, ms, ms) for ms in sorted(latencies)[1:] if ms not in {32, 33}
    ]
    assert (33, 2, 65, 33) in rows
    assert all(row[3] <= row[0] <= max(row[3] * 17 / 16, 31) for row in rows[1:])


def test_updating_an_up_to_date_lake_commits_nothing(builder: StoreBuilder) -> None:
    put_days(builder, [0])
    lake = lake_of(builder)
    lake.take_all()
    lake.catch_up()
    version = TRAFFIC.table.existing(lake.place).version()

    assert not catch_up(lake.place, ArrowWriter())

    assert TRAFFIC.table.existing(lake.place).version() == version


def test_the_small_files_of_a_day_become_one_while_the_day_is_open(
    builder: StoreBuilder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("analytics.lake.compaction.FILES_A_TIER_MAX", FILES_A_TIER_MAX)
    put_days(builder, [0], count=30)
    lake = lake_of(builder, batch_bytes=800)
    batches = 0
    while lake.ingest.batch() is not None:
        batches += 1
        lake.catch_up()

    done = maintain(lake.place, FIRST_DAY, ArrowWriter())

    assert batches > FILES_A_TIER_MAX
    assert done.is_done
    for gold in (TRAFFIC, LATENCY, KEYS):
        assert files_a_day(lake, gold) == {0: 1}
    assert lake.traffic() == traffic_of(builder.stored)
    assert keys_in(lake) == keys_of(builder.stored)
    assert differences(lake.place, MESSAGES.existing(lake.place), ArrowWriter()) == []


def test_each_day_is_recounted_after_bronze_cleaned_its_log(
    builder: StoreBuilder,
) -> None:
    put_days(builder, [0])
    lake = lake_of(builder)
    lake.take_all()
    lake.catch_up()
    put_days(builder, [1])
    lake.take_all()
    MESSAGES.existing(lake.place).create_checkpoint()
    log = lake.directory / "bronze" / "messages" / "_delta_log"
    for path in log.glob("*.json"):
        path.unlink()

    lake.catch_up()

    assert lake.traffic() == traffic_of(builder.stored)
    assert keys_in(lake) == keys_of(builder.stored)


def test_after_a_rebuild_gold_matches_the_new_log(builder: StoreBuilder) -> None:
    put_days(builder, range(2))
    lake = lake_of(builder, batch_bytes=3000)
    lake.take_all()
    lake.catch_up()
    other = StoreBuilder(builder.root)
    put_days(other, [1, 2], count=40)

    rebuild(lake.place, lake.source)
    between = lake.traffic()
    lake.take_all()
    lake.catch_up()

    assert between == {}
    assert lake.traffic() == traffic_of(other.stored)


def test_days_dropped_by_bronze_stay_in_gold_and_count_once(builder: StoreBuilder) -> None:
    put_days(builder, range(4))
    lake = lake_of(builder, batch_bytes=3000)
    lake.take_all()

    maintain(lake.place, FIRST_DAY + timedelta(days=5), ArrowWriter(), bronze_days=3)
    kept = lake.query("SELECT DISTINCT day FROM bronze.messages")
    rebuild(lake.place, lake.source)
    lake.take_all()
    found = verify(lake.place, lake.source)

    assert len(kept) == 2
    assert found.is_equal
    assert found.in_gold == []
    assert lake.traffic() == traffic_of(builder.stored)
    assert keys_in(lake) == keys_of(builder.stored)


def test_days_dropped_by_bronze_are_not_recounted_from_a_diverged_log(
    builder: StoreBuilder,
) -> None:
    put_days(builder, range(4))
    lake = lake_of(builder, batch_bytes=15_000)
    lake.take_all()
    maintain(lake.place, FIRST_DAY + timedelta(days=5), ArrowWriter(), bronze_days=3)
    other = StoreBuilder(builder.root)
    put_days(other, range(2))
    put_days(other, [2, 3, 4], count=40)
    since = START_MS + 2 * DAY_MS

    for _ in range(2):
        rebuild(lake.place, lake.source)
        lake.take_all()
        found = verify(lake.place, lake.source)

        assert found.is_equal
        assert found.messages == 120
        assert found.in_gold == []
        assert lake.traffic() == traffic_of(other.stored)
        assert keys_in(lake) == keys_of(other.stored)
        assert min(lake.rows("day"))[0] == FIRST_DAY + timedelta(days=2)

    builder.stored = [one for one in other.stored if one.store_timestamp >= since]
    assert lake.offsets() == [one.commit_log_offset for one in builder.stored]


def test_an_erased_key_is_in_no_row_or_file_of_gold(builder: StoreBuilder) -> None:
    put_days(builder, range(4))
    for day in (1, 4):
        builder.put(
            properties=b"KEYS\x01most-secret-key other", store_timestamp=START_MS + DAY_MS * day
        )
    builder.write()
    lake = lake_of(builder)
    lake.take_all()
    maintain(lake.place, FIRST_DAY + timedelta(days=5), ArrowWriter(), bronze_days=3)

    count = forget(lake.place, "most-secret-key")

    assert count == 1
    assert lake.traffic() == traffic_of(builder.stored)
    keys = keys_in(lake)
    # A day dropped from bronze still counts, without a name; days in bronze are recounted.
    assert keys[("orders", None)] == 1  # type: ignore[index]
    assert keys[("orders", "other")] == 1
    for path in lake.directory.rglob("*"):
        assert not path.is_file() or b"most-secret" not in path.read_bytes()
    assert forget(lake.place, "most-secret-key") == 0


def test_a_past_day_is_one_file_of_the_most_frequent_keys(builder: StoreBuilder) -> None:
    for number in range(KEYS_A_TOPIC + 100):
        key = b"KEYS\x01often often" if number % 100 == 0 else b"KEYS\x01k%04d" % number
        builder.put(properties=key, store_timestamp=START_MS + number)
    builder.write()
    lake = lake_of(builder, batch_bytes=20_000)
    while lake.ingest.batch() is not None:
        lake.catch_up()

    for _ in range(2):
        maintain(lake.place, FIRST_DAY + timedelta(days=2), ArrowWriter())

        assert files_a_day(lake, KEYS) == files_a_day(lake, TRAFFIC) == {0: 1}
        rows = lake.query("SELECT key, key_count, messages FROM gold.keys_day ORDER BY messages")
        assert rows[-1] == (None, 90, 90)
        assert rows[-2] == ("often", 1, 11)
        assert len(rows) == KEYS_A_TOPIC + 1
        assert differences(lake.place, MESSAGES.existing(lake.place), ArrowWriter()) == []


def test_gold_is_kept_for_400_days(builder: StoreBuilder) -> None:
    put_days(builder, [0, 2])
    lake = lake_of(builder)
    lake.take_all()

    maintain(lake.place, FIRST_DAY + timedelta(days=401), ArrowWriter())

    assert lake.traffic() == traffic_of(builder.stored[30:])
    assert files_a_day(lake, KEYS) == {2: 1}


def test_verify_finds_differences_in_gold_and_a_rebuild_repairs_it(
    builder: StoreBuilder, capsys: pytest.CaptureFixture[str]
) -> None:
    put_days(builder, [0])
    lake = lake_of(builder)
    lake.take_all()
    lake.catch_up()
    table = TRAFFIC.table.existing(lake.place)
    (file,) = stored_files_of(table)
    TRAFFIC.table.commit(lake.place, table, [], removed=[file.path])
    environment = {"TREBUCHET_LAKE": lake.place.uri, "TREBUCHET_STORE": str(builder.root)}

    code = main(["verify"], environment)

    output = capsys.readouterr().out
    assert code == 1
    assert (
        f"gold.traffic_minute has 0 messages on {FIRST_DAY}, but bronze.messages has 30." in output
    )
    assert "rebuild --gold --yes` to count 1 again" in output
    assert main(["rebuild", "--gold", "--yes"], environment) == 0
    assert main(["verify"], environment) == 0
    assert lake.traffic() == traffic_of(builder.stored)


STEPS = st.sampled_from(
    ["put", "put", "take", "take", "up", "compact", "drop", "forget", "rebuild", "anew"]
)


@settings(max_examples=4, deadline=None, phases=[Phase.explicit, Phase.generate])
@given(steps=st.lists(STEPS, min_size=6, max_size=14))
def test_sums_equal_a_recount_after_any_sequence_of_events(steps: list[str]) -> None:
    with TemporaryDirectory() as directory:
        builder = StoreBuilder(Path(directory) / "store")
        lake = lake_of(builder, batch_bytes=1500)
        day, is_forgotten = 0, False
        put_days(builder, [0], count=8)
        for step in steps:
            match step:
                case "put":
                    day += 1
                    put_days(builder, [day], count=8)
                case "take":
                    lake.ingest.batch()
                case "up":
                    lake.catch_up()
                case "compact":
                    maintain(lake.place, FAR, ArrowWriter(), bronze_days=40)
                case "drop":
                    maintain(
                        lake.place, FIRST_DAY + timedelta(days=day), ArrowWriter(), bronze_days=2
                    )
                case "forget":
                    forget(lake.place, "k1")
                    is_forgotten = True
                case "rebuild":
                    rebuild(lake.place, lake.source)
                case _:
                    catch_up(lake.place, ArrowWriter(), recount=True)
        lake.take_all()
        lake.catch_up()

        assert lake.traffic() == traffic_of(builder.stored)
        assert differences(lake.place, MESSAGES.existing(lake.place), ArrowWriter()) == []
        if not is_forgotten:
            assert keys_in(lake) == keys_of(builder.stored)
