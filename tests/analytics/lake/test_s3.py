"""A lake in S3-compatible storage: moto's server, on loopback."""

from __future__ import annotations

import http.client
import subprocess
import sys
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from analytics.errors import LakeBusyError, LakeError
from analytics.lake.bodies import BodyRules
from analytics.lake.ingest import Ingest, Source
from analytics.lake.maintenance import maintain
from analytics.lake.masks import Mask
from analytics.lake.place import LakePlace
from analytics.lake.repair import forget, rebuild, verify
from analytics.lake.tables import MESSAGES
from analytics.lake.writer import ArrowWriter
from analytics.query.engine import Engine
from analytics.query.views import views_of
from tests.analytics.lake.lakes import BROKER
from tests.analytics.lake.test_maintenance import DAY_MS, FIRST_DAY
from tests.analytics.store_builder import START_MS, StoreBuilder
from tests.support.ports import accepts, free_port
from tests.support.waiting import until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SECONDS = 120


@pytest.fixture(scope="module")
def server() -> Iterator[dict[str, str]]:
    """The environment variables for an S3 server with the bucket `lakes`."""
    port = free_port()
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        until(lambda: accepts(port), "the S3 server", seconds=SECONDS)
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=SECONDS)
        connection.request("PUT", "/lakes")
        assert connection.getresponse().status == 200
        connection.close()
        yield {
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}",
            "AWS_ACCESS_KEY_ID": "somebody",
            "AWS_SECRET_ACCESS_KEY": "s3cret",
        }
        process.terminate()


def take_all(ingest: Ingest) -> int:
    rows = 0
    while (batch := ingest.batch()) is not None:
        rows += batch.rows
    return rows


def test_a_lake_in_a_bucket_is_filled_maintained_and_repaired(
    server: dict[str, str], tmp_path: Path
) -> None:
    builder = StoreBuilder(tmp_path / "store")
    for number in range(120):
        builder.put("orders", store_timestamp=START_MS + number)
    builder.put("orders", properties=b"KEYS\x01secret-7", store_timestamp=START_MS + DAY_MS)
    builder.write()
    place = LakePlace.of("s3a://lakes/one", tmp_path / "state", server)
    source = Source(BROKER, builder.root, None, BodyRules())
    ingest = Ingest(place, source, batch_bytes=6000)

    assert take_all(ingest) == 121
    assert verify(place, source).is_equal
    assert forget(place, "secret-7") == 1
    assert maintain(
        place, FIRST_DAY.replace(year=FIRST_DAY.year + 1), ArrowWriter(), bronze_days=9999
    ).merged
    assert verify(place, source).is_equal
    assert rebuild(place, source).rows == 121
    assert take_all(ingest) == 121
    assert verify(place, source).is_equal


def test_a_query_of_a_bucket_is_narrowed_and_masked(server: dict[str, str], tmp_path: Path) -> None:
    builder = StoreBuilder(tmp_path / "store")
    for day in range(2):
        for topic in ("shop-a", "bank"):
            at = START_MS + day * DAY_MS
            builder.put(topic, properties=b"token\x01hidden", store_timestamp=at)
    builder.write()
    place = LakePlace.of("s3://lakes/three", tmp_path / "state", server)
    take_all(Ingest(place, Source(BROKER, builder.root, None, BodyRules())))
    views = views_of(place, ["shop-*"], [Mask(("*",), "property", "token")])

    sql = (
        "SELECT topic, day, properties['token'] AS token FROM bronze.messages "
        f"WHERE day > DATE '{FIRST_DAY}' AND topic <> 'x'"
    )
    with Engine(place, views, "UTC").reader(sql) as reader:
        found = reader.read_all().to_pylist()

    assert found == [{"topic": "shop-a", "day": FIRST_DAY + timedelta(days=1), "token": "***"}]


def test_one_of_two_simultaneous_commits_to_a_bucket_is_rejected(
    server: dict[str, str], tmp_path: Path
) -> None:
    builder = StoreBuilder(tmp_path / "store").put_many(5)
    builder.write()
    place = LakePlace.of("s3://lakes/two", tmp_path / "state", server)
    stale = MESSAGES.open(place)
    ingest = Ingest(place, Source(BROKER, builder.root, None, BodyRules()))
    take_all(ingest)

    with pytest.raises(LakeBusyError):
        MESSAGES.commit(place, stale, [], states={"bronze-broker-a": 0})


def test_a_missing_bucket_is_reported_in_one_sentence(
    server: dict[str, str], tmp_path: Path
) -> None:
    builder = StoreBuilder(tmp_path / "store").put_many(5)
    builder.write()
    place = LakePlace.of("s3://nobodys/lake", tmp_path / "state", server)

    with pytest.raises(LakeError, match="can't be opened"):
        Ingest(place, Source(BROKER, builder.root, None, BodyRules())).batch()


def test_secrets_may_be_in_files_and_are_not_shown(tmp_path: Path) -> None:
    file = tmp_path / "secret"
    file.write_text("s3cret\n")

    place = LakePlace.of("s3://lakes/x", tmp_path, {"AWS_SECRET_ACCESS_KEY_FILE": str(file)})

    assert place.access["AWS_SECRET_ACCESS_KEY"] == "s3cret"
    assert "s3cret" not in repr(place)
    with pytest.raises(LakeError, match="AWS_SECRET_ACCESS_KEY_FILE names"):
        LakePlace.of("s3://lakes/x", tmp_path, {"AWS_SECRET_ACCESS_KEY_FILE": "/nowhere"})
