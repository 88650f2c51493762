"""Results: what a scheduled query or report found, as each kind of channel takes it."""

from __future__ import annotations

import io
import json
from typing import TYPE_CHECKING
from xml.etree import ElementTree as ET

import pytest
from PIL import Image

from console.alerts import pictures, rasters
from console.alerts.models import Channel, Message
from console.alerts.payloads import body_of, headline, plain
from console.alerts.results import ROWS_MAX, as_html, content_of
from console.alerts.telling import tell

if TYPE_CHECKING:
    from console.alerts.pictures import Picture

pytestmark = pytest.mark.django_db

SVG = "{http://www.w3.org/2000/svg}"


def content(count: int = 2, **more: Picture):
    rows = [[f"orders <b>{number}</b>", str(number)] for number in range(count)]
    table = (["topic", "sent"], rows)
    return content_of("late & lost", "2 rows", table, count=count, path="/sql/runs/x/", **more)


def shown(kind: str, of) -> dict[str, object]:
    message = Message(pk=7, channel=Channel(name="room", kind=kind), created_ms=1, content=of)
    found: dict[str, object] = json.loads(body_of(message))
    return found


def test_a_webhook_has_table_and_picture() -> None:
    picture = pictures.of_bars([("orders", "1", 1.0)])
    found = shown("webhook", content(picture=picture))

    assert (found["status"], found["title"]) == ("result", "late & lost: 2 rows")
    assert str(found["url"]).endswith("/sql/runs/x/")
    assert found["silence_url"] == ""
    assert found["result"] == {
        "name": "late & lost",
        "summary": "2 rows",
        "columns": ["topic", "sent"],
        "rows": [["orders <b>0</b>", "0"], ["orders <b>1</b>", "1"]],
        "more": 0,
        "picture_svg": pictures.svg_of(picture),
    }


@pytest.mark.parametrize("kind", ["slack", "teams", "dingtalk"])
def test_a_chat_has_the_first_rows_and_a_link(kind) -> None:
    text = json.dumps(shown(kind, content(50)), ensure_ascii=False)

    assert "late &amp; lost" in text if kind == "slack" else "late & lost" in text
    assert "/sql/runs/x/" in text
    assert "9" in text
    assert "30 more" in text
    assert "/alerts/" not in text


def test_a_mail_says_no_more_than_its_table(settings) -> None:
    made = content(ROWS_MAX + 3)
    html = as_html(made)

    assert html.count("<tr>") == ROWS_MAX + 1
    assert "orders &lt;b&gt;0&lt;/b&gt;" in html
    assert "late &amp; lost" in html
    assert "and 3 more" in html
    assert headline(made) == "late & lost: 2 rows"
    assert "topic · sent" in plain(made)


def test_only_channels_that_there_are_are_told() -> None:
    on, off = (
        Channel.objects.create(name=name, kind="slack", enabled=name == "on")
        for name in ("on", "off")
    )

    assert tell([on.pk, off.pk, 99], content) == 1
    assert Message.objects.get().channel == on


def test_a_picture_of_bars_is_text_that_breaks_nothing() -> None:
    bars = pictures.of_bars([("<b>&\x00", "2\xa0000", 1.0), ("x" * 99, "1", 0.0)])

    found = ET.fromstring(pictures.svg_of(bars))

    rects = found.findall(f"{SVG}rect")[1:]
    assert [float(each.attrib["width"]) for each in rects] == [390.0, 1.0]
    assert "<b>& " in [each.text for each in found.findall(f"{SVG}text")]


def test_a_picture_over_time_has_a_line_for_each_name() -> None:
    points = {
        "times": [0, 60, 120],
        "series": [
            {"label": "orders", "values": [0.0, 1_000.0, 500.0]},
            {"label": None, "values": [0, 0, 0]},
        ],
    }

    found = ET.fromstring(pictures.svg_of(pictures.of_points(points)))

    lines = [each.attrib["points"] for each in found.findall(f"{SVG}polyline")]
    assert lines[-2:] == ["28,212 360,28 692,120", "28,212 360,212 692,212"]
    texts = [each.text for each in found.findall(f"{SVG}text")]
    assert "1970-01-01 00:02 UTC" in texts
    assert "1\xa0000" in texts


def test_a_picture_is_the_same_after_it_was_kept_and_below_its_title() -> None:
    picture = pictures.of_bars([("orders", "1", 1.0)]).headed("Traffic", "last hour")

    kept = pictures.kept_picture(json.loads(json.dumps(picture.kept())))

    assert kept == picture
    assert rasters.png_of(picture) == rasters.png_of(kept)
    heights = [each.at[1] for each in picture.shapes if isinstance(each, pictures.Words)]
    assert heights == sorted(heights)
    assert heights[-1] <= picture.height


@pytest.mark.parametrize("found", [None, "", "<svg/>", {}, {"height": 1, "shapes": [{}]}])
def test_what_is_no_picture_is_none(found: object) -> None:
    assert pictures.kept_picture(found) is None


def test_a_png_has_the_shapes_where_the_svg_has_them() -> None:
    bar = pictures.Box((100, 40, 50, 20), "#ff0000")
    line = pictures.Line([(0, 90), (720, 90)], "#0000ff", 4)

    with Image.open(io.BytesIO(rasters.png_of(pictures.Picture(100, [bar, line])))) as image:
        twice = [image.getpixel((2 * x, 2 * y)) for x, y in [(125, 50), (99, 50), (360, 90)]]

        assert image.size == (2 * pictures.WIDTH, 200)
        assert twice == [(255, 0, 0), (255, 255, 255), (0, 0, 255)]


def test_letters_that_no_font_has_are_another_letter_and_words_are_english_then(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(rasters, "FURTHER_FONTS", ())
    rasters.fonts_of.cache_clear()
    try:
        assert rasters.font_for("\u2264 1 KiB \u2026 \u8ba2", 12)[1] == "<= 1 KiB \u2026 ?"
        assert rasters.writable("zh-hans") == "en"
        assert rasters.writable("de") == "de"
    finally:
        rasters.fonts_of.cache_clear()
