"""The lake's page: what it holds, how far behind it is, what is wrong and what mends it."""

from __future__ import annotations

from typing import Any

import pytest
from django.core.cache import cache
from django.urls import reverse

from console.gateway.moment import now_ms
from console.lake.views import troubles
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


def test_without_a_lake_the_page_says_how_to_switch_it_on(actors, brokers, settings) -> None:
    settings.TREBUCHET_LAKE = ""

    html = actors.reader.get(reverse("lake:index")).content.decode()

    assert "TREBUCHET_LAKE=true deploy/up" in html
    assert "hx-get" not in html.split("<main")[1]


def test_the_page_shows_tables_and_watermark_without_a_broker(lake, actors, brokers) -> None:
    brokers.down = True

    html = actors.reader.get(reverse("lake:index"), {"now": 1}).content.decode()

    assert "bronze.messages" in html
    assert '<td class="num">30</td>' in html
    assert "No process keeps the lake." in html
    assert "manage.py lake run" in html
    assert 'class="button button--primary" href="/sql/"' not in html


def test_the_state_comes_after_the_page(lake, actors) -> None:
    page = actors.admin.get(reverse("lake:index")).content.decode()

    assert f'hx-get="{reverse("lake:state")}"' in page
    assert "bronze.messages" not in page
    assert "bronze.messages" in actors.admin.get(reverse("lake:state")).content.decode()


def test_a_lake_that_cannot_be_read_is_a_sentence(lake, actors, settings) -> None:
    settings.TREBUCHET_LAKE = "ftp://nowhere"

    html = actors.reader.get(reverse("lake:state")).content.decode()

    assert "is neither a directory nor s3://bucket/prefix." in html


@pytest.mark.parametrize(
    ("changed", "sentence", "command"),
    [
        ({"keeper": None}, "No process keeps the lake.", "manage.py lake run"),
        (
            {"keeper": {"checked_ms": 1}},
            "The lake's process has not looked at the log for more than ten minutes.",
            "manage.py lake run",
        ),
        ({"warning": "It expires soon."}, "It expires soon.", "manage.py lake ingest"),
        (
            {"tables": [{"table": "bronze.gaps", "rows": 2, "bytes": 1}]},
            "Ranges of the log could not be read: the table bronze.gaps says which.",
            "manage.py lake verify",
        ),
    ],
)
def test_what_is_wrong_names_the_command(
    changed: dict[str, Any], sentence: str, command: str
) -> None:
    now = now_ms()
    well: dict[str, Any] = {"tables": [], "warning": "", "keeper": {"checked_ms": now - 9_000}}

    (found,) = troubles(well | changed, now)

    assert (found.sentence, found.command) == (sentence, command)
    assert troubles(well, now) == []


def test_an_error_of_the_lake_s_process_comes_first() -> None:
    now = now_ms()
    keeper = {"checked_ms": now, "error": "The log ends before the watermark."}

    first, _second = troubles({"tables": [], "warning": "Soon.", "keeper": keeper}, now)

    assert (first.sentence, first.state) == (keeper["error"], "bad")
