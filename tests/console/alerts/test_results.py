"""Results: what a scheduled query or report found, as each kind of channel takes it."""

from __future__ import annotations

import json
from xml.etree import ElementTree as ET

import pytest

from console.alerts import pictures
from console.alerts.models import Channel, Message
from console.alerts.payloads import body_of, headline, plain
from console.alerts.results import ROWS_MAX, as_html, content_of
from console.alerts.telling import tell

pytestmark = pytest.mark.django_db

SVG = "{http://www.w3.org/2000/svg}"


def content(count: int = 2, **more: str):
    rows = [[f"orders <b>{number}</b>", str(number)] for number in range(count)]
    table = (["topic", "sent"], rows)
    return content_of("late & lost", "2 rows", table, count=count, path="/sql/runs/x/", **more)


def shown(kind: str, of) -> dict[str, object]:
    message = Message(pk=7, channel=Channel(name="room", kind=kind), created_ms=1, content=of)
    found: dict[str, object] = json.loads(body_of(message))
    return found


def test_a_webhook_has_table_and_picture() -> None:
    found = shown("webhook", content(picture="<svg/>"))

    assert (found["status"], found["title"]) == ("result", "late & lost: 2 rows")
    assert str(found["url"]).endswith("/sql/runs/x/")
    assert found["silence_url"] == ""
    assert found["result"] == {
        "name": "late & lost",
        "summary": "2 rows",
        "columns": ["topic", "sent"],
        "rows": [["orders <b>0</b>", "0"], ["orders <b>1</b>", "1"]],
        "more": 0,
        "picture_svg": "<svg/>",
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

    assert tell([on.pk, off.pk, 99], content()) == 1
    assert Message.objects.get().channel == on


def test_a_picture_of_bars_is_text_that_breaks_nothing() -> None:
    found = ET.fromstring(pictures.of_bars([("<b>&\x00", "2\xa0000", 1.0), ("x" * 99, "1", 0.0)]))

    rects = found.findall(f"{SVG}rect")[1:]
    assert [float(each.attrib["width"]) for each in rects] == [390.0, 1.0]
    assert "<b>& " in [each.text for each in found.findall(f"{SVG}text")]


def test_a_picture_over_time_has_a_line_for_each_name() -> None:
    found = ET.fromstring(
        pictures.of_points(
            {
                "times": [0, 60, 120],
                "series": [
                    {"label": "orders", "values": [0.0, 1_000.0, 500.0]},
                    {"label": None, "values": [0, 0, 0]},
                ],
            }
        )
    )

    first, second = (each.attrib["points"] for each in found.findall(f"{SVG}polyline"))
    assert first == "28.0,212.0 360.0,28.0 692.0,120.0"
    assert second == "28.0,212.0 360.0,212.0 692.0,212.0"
    texts = [each.text for each in found.findall(f"{SVG}text")]
    assert "1970-01-01 00:02 UTC" in texts
    assert "1\xa0000" in texts
