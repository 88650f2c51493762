"""The lake's page: contents, delay, problems and their fixes."""

from __future__ import annotations

from typing import Any

import pytest
from django.core.cache import cache
from django.urls import reverse

from console.data.lake.views import troubles
from console.lib.moment import now_ms
from tests.analytics.lake.lakes import Lake
from tests.analytics.store_builder import StoreBuilder

pytestmark = pytest.mark.django_db


@pytest.fixture
def lake(actors, brokers, settings, tmp_path) -> Lake:
    builder = StoreBuilder(tmp_path / "store").put_many(30, ("orders", "bills"))
    builder.write()
    made = Lake(tmp_path / "lake", builder.root)
    made.take_all()
    settings.TREBUCHET_LAKE, settings.TREBUCHET_DATA = str(made.directory), tmp_path
    settings.TREBUCHET_STORE, settings.TREBUCHET_COMMIT_LOG = str(builder.root), ""
    cache.clear()
    return made


def test_without_a_lake_the_page_explains_how_to_enable_it(actors, brokers, settings) -> None:
    settings.TREBUCHET_LAKE = ""

    html = actors.reader.get(reverse("lake:index")).content.decode()

    assert "TREBUCHET_LAKE=true deploy/up" in html
    assert "hx-get" not in html.split("<main")[1]


def test_the_page_shows_tables_and_watermark_without_a_broker(lake, actors, brokers) -> None:
    brokers.down = True

    html = actors.reader.get(reverse("lake:index"), {"now": 1}).content.decode()

    assert "bronze.messages" in html
    assert '<td class="num">30</td>' in html
    assert "The lake keeps up with the log." in html
    assert 'class="button button--primary" href="/sql/"' not in html


def test_before_the_first_batch_the_page_explains_when_it_arrives(
    lake, actors, settings, tmp_path
) -> None:
    (tmp_path / "empty").mkdir()
    settings.TREBUCHET_LAKE = str(tmp_path / "fresh")
    settings.TREBUCHET_STORE = str(tmp_path / "empty")

    html = actors.reader.get(reverse("lake:state")).content.decode()

    assert "The first batch arrives within a minute of the first message." in html
    assert "keeps up with the log" not in html


def test_the_state_is_loaded_after_the_page(lake, actors) -> None:
    page = actors.admin.get(reverse("lake:index")).content.decode()

    assert f'hx-get="{reverse("lake:state")}"' in page
    assert "bronze.messages" not in page
    assert "bronze.messages" in actors.admin.get(reverse("lake:state")).content.decode()


def test_an_unreadable_lake_is_explained_in_one_sentence(lake, actors, settings) -> None:
    settings.TREBUCHET_LAKE = "ftp://nowhere"

    html = actors.reader.get(reverse("lake:state")).content.decode()

    assert "a directory or an address such as s3://bucket/prefix." in html


@pytest.mark.parametrize(
    ("changed", "sentence", "command"),
    [
        (
            {"jobs": None, "pending_bytes": 7},
            "The log has new messages, and the pipeline hasn't ingested any for more than ten "
            "minutes. Check that its worker is running.",
            "manage.py lake ingest",
        ),
        (
            {"jobs": {"checked_ms": 1}, "pending_bytes": 7, "pending_since_ms": 2},
            "The log has new messages, and the pipeline hasn't ingested any for more than ten "
            "minutes. Check that its worker is running.",
            "manage.py lake ingest",
        ),
        ({"warning": "It expires soon."}, "It expires soon.", "manage.py lake ingest"),
        (
            {"tables": [{"table": "bronze.gaps", "rows": 2, "bytes": 1}]},
            "Some ranges of the log couldn't be read. See the table bronze.gaps.",
            "manage.py lake verify",
        ),
    ],
)
def test_an_error_names_the_command(changed: dict[str, Any], sentence: str, command: str) -> None:
    now = now_ms()
    # Without new messages, no check is needed.
    well: dict[str, Any] = {"tables": [], "warning": "", "jobs": {"checked_ms": 1}}

    # A message after a quiet hour isn't a problem, either.
    fresh = {"pending_bytes": 7, "pending_since_ms": now - 5_000}

    (found,) = troubles(well | changed, now)

    assert (found.sentence, found.command) == (sentence, command)
    assert troubles(well, now) == troubles(well | fresh, now) == []


def test_a_pipeline_error_comes_first() -> None:
    now = now_ms()
    jobs = {"checked_ms": now, "error": "The log ends before the watermark."}

    first, _second = troubles({"tables": [], "warning": "Soon.", "jobs": jobs}, now)

    assert (first.sentence, first.state) == (jobs["error"], "bad")
