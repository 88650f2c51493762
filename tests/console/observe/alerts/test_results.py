"""Results: rows of a scheduled query or report, in the format of each kind of channel."""

from __future__ import annotations

import io
import json
import shutil
from typing import TYPE_CHECKING
from xml.etree import ElementTree as ET

import pytest
from PIL import Image

from console.observe.alerts import fonts, pictures, rasters
from console.observe.alerts.models import Channel, Message
from console.observe.alerts.payloads import body_of, headline, plain
from console.observe.alerts.result_delivery import queue_result
from console.observe.alerts.results import ROWS_MAX, as_html, content_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from console.observe.alerts.pictures import Picture

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
def test_a_chat_message_has_the_first_rows_and_a_link(kind) -> None:
    text = json.dumps(shown(kind, content(50)), ensure_ascii=False)

    assert "late &amp; lost" in text if kind == "slack" else "late & lost" in text
    assert "/sql/runs/x/" in text
    assert "9" in text
    assert "30 more" in text
    assert "/alerts/" not in text


def test_a_mail_has_no_more_than_its_table(settings) -> None:
    made = content(ROWS_MAX + 3)
    html = as_html(made)

    assert html.count("<tr>") == ROWS_MAX + 1
    assert "orders &lt;b&gt;0&lt;/b&gt;" in html
    assert "late &amp; lost" in html
    assert "and 3 more" in html
    assert headline(made) == "late & lost: 2 rows"
    assert "topic · sent" in plain(made)


def test_only_existing_channels_are_notified() -> None:
    on, off = (
        Channel.objects.create(name=name, kind="slack", enabled=name == "on")
        for name in ("on", "off")
    )

    assert queue_result([on.pk, off.pk, 99], content) == 1
    assert Message.objects.get().channel == on


def test_a_bar_picture_is_text_that_breaks_nothing() -> None:
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


def test_a_saved_picture_is_unchanged_and_below_its_title() -> None:
    picture = pictures.of_bars([("orders", "1", 1.0)]).headed("Traffic", "last hour")

    kept = pictures.picture_from_json(json.loads(json.dumps(picture.as_json())))

    assert kept == picture
    assert rasters.png_of(picture) == rasters.png_of(kept)
    heights = [each.at[1] for each in picture.shapes if isinstance(each, pictures.Words)]
    assert heights == sorted(heights)
    assert heights[-1] <= picture.height


@pytest.mark.parametrize("found", [None, "", "<svg/>", {}, {"height": 1, "shapes": [{}]}])
def test_an_invalid_picture_is_not_read(found: object) -> None:
    assert pictures.picture_from_json(found) is None


def test_a_png_has_its_shapes_where_the_svg_has_them() -> None:
    bar = pictures.Box((100, 40, 50, 20), "#ff0000")
    line = pictures.Line([(0, 90), (720, 90)], "#0000ff", 4)

    with Image.open(io.BytesIO(rasters.png_of(pictures.Picture(100, [bar, line])))) as image:
        twice = [image.getpixel((2 * x, 2 * y)) for x, y in [(125, 50), (99, 50), (360, 90)]]

        assert image.size == (2 * pictures.WIDTH, 200)
        assert twice == [(255, 0, 0), (255, 255, 255), (0, 0, 255)]


@pytest.fixture
def no_further_font(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A machine without any fonts but ours."""
    monkeypatch.setattr(fonts, "FOLDERS", ())
    rasters.forget()
    rasters.warn_once.cache_clear()
    yield
    rasters.forget()


@pytest.mark.usefixtures("no_further_font")
def test_letters_missing_in_all_fonts_are_codes_and_words_are_then_english() -> None:
    def written(text: str) -> str:
        return rasters.font_for(text, pictures.TEXT_SIZE, pictures.LABEL_CHARACTERS_MAX)[1]

    assert written("\u2264 1 KiB \u2026 \u8ba2") == "<= 1 KiB \u2026 \\u8ba2"
    assert written("\U0001f4e6") == "\\U0001f4e6"
    # Two names of the same length must stay distinct.
    assert written("\u8ba2\u5355") != written("\u652f\u4ed8")
    assert written("\u8ba2" * 17) == "\\u8ba2" * 5 + "\\u8\u2026"
    assert rasters.writable("zh-hans") == "en"
    assert rasters.writable("de") == "de"


@pytest.mark.usefixtures("no_further_font")
def test_a_missing_extension_is_logged_once_with_its_package(
    caplog: pytest.LogCaptureFixture,
) -> None:
    chinese = pictures.of_bars([("\u8ba2\u5355", "1", 1.0)])

    assert not rasters.is_font_missing(pictures.of_bars([("orders \u2264", "1", 1.0)]))
    assert rasters.is_font_missing(chinese)
    for _ in range(2):
        rasters.png_of(chinese)

    (line,) = [record.getMessage() for record in caplog.records]
    assert fonts.PACKAGE in line


@pytest.mark.usefixtures("no_further_font")
def test_a_newly_installed_font_is_found(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    # A character that our own font lacks, in place of a Chinese one.
    monkeypatch.setattr(rasters, "SAMPLES", {"zh": "\u2215"})
    assert rasters.writable("zh-hans") == "en"

    shutil.copy(rasters.OWN_FONT.with_name("jetbrains-mono.woff2"), tmp_path / "wqy-microhei.ttc")
    monkeypatch.setattr(fonts, "FOLDERS", (tmp_path,))

    assert rasters.writable("zh-hans") == "zh-hans"
    assert rasters.font_for("a \u2215 b", pictures.TEXT_SIZE, 34)[1] == "a \u2215 b"


def test_a_chinese_character_is_two_columns_wide() -> None:
    assert pictures.cut("\u8ba2" * 17) == "\u8ba2" * 17
    assert pictures.cut("\u8ba2" * 18) == "\u8ba2" * 16 + "\u2026"
    assert pictures.cut("a" * 34) == "a" * 34
    assert pictures.cut("a" * 35) == "a" * 33 + "\u2026"


def test_a_line_is_broken_at_missing_samples_and_a_single_point_is_a_dot() -> None:
    values = [1, 2, None, 2, None]
    points = {"times": list(range(5)), "series": [{"label": "", "values": values}]}

    shapes = pictures.of_points(points).shapes

    (line,) = [each for each in shapes if isinstance(each, pictures.Line) and each.width > 1]
    assert len(line.points) == 2
    dots = [each.place for each in shapes if isinstance(each, pictures.Box)]
    assert (pictures.DOT, pictures.DOT) in [place[2:] for place in dots]
    assert "-" in [each.text for each in shapes if isinstance(each, pictures.Words)]
