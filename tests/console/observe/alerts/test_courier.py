"""Courier: pending messages are delivered in order, retried, eventually given up, and logged."""

from __future__ import annotations

import hashlib
import hmac
import logging
import socket
import threading
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest

from console.observe.alerts import courier as courier_module, posting
from console.observe.alerts.courier import (
    BACKOFF_MS_MAX,
    REFUSED_TRIES_MAX,
    TRIES_MAX,
    Courier,
    wait_ms,
)
from console.observe.alerts.heartbeat import Heartbeat
from console.observe.alerts.models import Channel, Message, preferences
from console.observe.alerts.pictures import of_bars
from console.observe.alerts.rasters import png_of
from console.observe.alerts.result_delivery import queue_result
from console.observe.alerts.results import content_of
from tests.support.clock import ManualClock
from tests.support.http_sink import HttpSink, http_sink
from tests.support.long_timeouts import PATIENCE_S
from tests.support.smtp_sink import SmtpSink, smtp_sink
from tests.support.waiting import until

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.django_db

CONTENT = {"status": "firing", "alerts": [], "firing": 2, "rule": "r", "resolved": 0}


@pytest.fixture
def sink(settings) -> Iterator[HttpSink]:
    settings.TREBUCHET_ALERT_TARGETS = ["127.0.0.1"]
    with http_sink() as made:
        yield made


@pytest.fixture
def post(settings) -> Iterator[SmtpSink]:
    with smtp_sink() as made:
        settings.EMAIL_BACKEND = "django.core.mail.backends.smtp.EmailBackend"
        settings.EMAIL_HOST, settings.EMAIL_PORT = "127.0.0.1", made.port
        settings.EMAIL_USE_TLS = settings.EMAIL_USE_SSL = False
        yield made


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def courier(clock: ManualClock) -> Courier:
    return Courier(clock.now_ms, lambda: int(clock.monotonic() * 1000), lambda: True)


def put(to: Channel, /, **content: object) -> Message:
    return Message.objects.create(channel=to, created_ms=1, content=CONTENT | content)


def hook(sink: HttpSink, kind: str = "webhook", **more: object) -> Channel:
    values: dict[str, object] = {"name": "hook", "kind": kind, "url": sink.url()}
    return Channel.objects.create(**values | more)


def mailbox() -> Channel:
    return Channel.objects.create(name="mail", kind="email", addresses=["ada@example.com"])


def states() -> list[str]:
    return list(Message.objects.order_by("id").values_list("state", flat=True))


def test_a_webhook_is_signed_over_body_and_time(sink, courier, clock) -> None:
    message = put(hook(sink, secret="s3cret"))

    courier.turn()

    [got] = sink.received
    timestamp = str(clock.now_ms() // 1000)
    expected = hmac.new(b"s3cret", timestamp.encode() + b"." + got.body, hashlib.sha256).hexdigest()
    assert got.headers["x-trebuchet-timestamp"] == timestamp
    assert got.headers["x-trebuchet-signature"] == f"v1={expected}"
    assert got.headers["x-trebuchet-delivery"] == str(message.pk)
    assert got.json()["id"] == str(message.pk)
    assert states() == ["sent"]


def test_a_channels_messages_arrive_in_order_despite_failures(sink, courier, clock) -> None:
    channel = hook(sink)
    numbers = [str(put(channel).pk) for _ in range(4)]
    sink.status = 503
    courier.turn()
    assert states() == ["waiting"] * 4
    sink.status = 200

    courier.turn()
    assert len(sink.received) == 1  # not due yet
    clock.advance_ms(10_000)
    for _ in range(4):
        courier.turn()

    assert [each.json()["id"] for each in sink.received] == [numbers[0], *numbers]
    assert states() == ["sent"] * 4


def test_a_failing_channel_does_not_delay_the_others(sink, post, courier) -> None:
    put(hook(sink))
    put(mailbox())
    sink.status = 500

    courier.turn()

    assert states() == ["waiting", "sent"]


def test_waiting_grows_to_its_limit_and_follows_retry_after() -> None:
    assert [wait_ms(tries, None) for tries in (1, 2, 3)] == [10_000, 20_000, 40_000]
    assert wait_ms(TRIES_MAX, None) == BACKOFF_MS_MAX
    assert wait_ms(1, 60) == 60_000
    assert wait_ms(1, 999_999) == BACKOFF_MS_MAX


@pytest.mark.parametrize(("status", "tries"), [(404, REFUSED_TRIES_MAX), (302, REFUSED_TRIES_MAX)])
def test_a_rejected_message_is_given_up_and_the_next_one_is_sent(
    sink, courier, clock, status: int, tries: int
) -> None:
    channel = hook(sink)
    put(channel)
    put(channel)
    sink.status = status
    sink.headers["Location"] = sink.url("/elsewhere")

    for _ in range(tries):
        courier.turn()
        clock.advance_ms(BACKOFF_MS_MAX)
    sink.status = 200
    courier.turn()

    assert states() == ["failed", "sent"]
    assert len(sink.of("/hook")) == tries + 1
    assert sink.of("/elsewhere") == []


def test_a_test_message_is_tried_once(sink, courier) -> None:
    put(hook(sink), status="test", channel="hook")
    sink.status = 500

    courier.turn()

    assert Message.objects.get().state == "failed"
    assert Message.objects.get().outcome == "500 Internal Server Error"


def test_a_clock_that_stepped_back_does_not_delay_messages(sink, courier, clock) -> None:
    put(hook(sink))
    sink.status = 500
    courier.turn()
    sink.status = 200

    clock.step_wall_clock_ms(-86_400_000)
    courier.turn()

    assert states() == ["sent"]


@pytest.mark.parametrize(
    ("text", "state"),
    [
        ('{"errcode":0,"errmsg":"ok"}', "sent"),
        ('{"errcode":310000,"errmsg":"sign not match"}', "waiting"),
        ("<html>", "waiting"),
    ],
)
def test_dingtalk_reports_acceptance_in_the_body(sink, courier, text, state) -> None:
    channel = hook(sink, "dingtalk", secret="SEC1", url=sink.url("/robot/send?access_token=t"))
    put(channel)
    sink.text = text

    courier.turn()

    assert states() == [state]
    assert sink.received[0].path.startswith("/robot/send?access_token=t&timestamp=")
    assert "&sign=" in sink.received[0].path


def test_slack_and_dingtalk_receive_messages_no_faster_than_they_accept(
    sink, courier, clock
) -> None:
    channel = hook(sink, "slack")
    put(channel)
    put(channel)

    courier.turn()
    courier.turn()
    assert states() == ["sent", "waiting"]
    clock.advance_ms(1_000)
    courier.turn()

    assert states() == ["sent", "sent"]


def test_a_mail_keeps_its_id_across_retries(post, courier, clock) -> None:
    put(mailbox())
    post.data = "451 later"
    courier.turn()
    assert states() == ["waiting"]
    post.data = "250 taken"

    clock.advance_ms(10_000)
    courier.turn()

    [mail] = post.mails
    message = Message.objects.get()
    assert mail["To"] == "ada@example.com"
    assert mail["Subject"] == "2 alerts of r are firing"
    assert mail["Message-ID"].startswith(f"<alert-{message.pk}-")
    assert message.tries == 2


def test_a_result_is_mailed_with_its_table_and_picture(post, courier) -> None:
    table = (["topic", "sent"], [["orders", "20"]])
    picture = of_bars([("orders", "20", 1.0)])
    report = content_of("orders", "1 row", table, count=1, path="/sql/", picture=picture)
    queue_result([mailbox().pk], lambda: report)

    courier.turn()

    [mail] = post.mails
    parts = {part.get_content_type(): part for part in mail.walk()}
    assert mail["Subject"] == "orders: 1 row"
    html = parts["text/html"].get_payload(decode=True).decode()
    assert "<td" in html
    assert f'src="cid:{parts["image/png"]["Content-ID"].strip("<>")}"' in html
    assert "orders · 20" in parts["text/plain"].get_payload(decode=True).decode()
    assert parts["image/png"].get_filename() == "chart.png"
    assert parts["image/png"].get_payload(decode=True) == png_of(picture)
    assert "multipart/related" in parts


def test_a_rejecting_mail_servers_reason_is_logged(post, courier) -> None:
    put(mailbox())
    post.rcpt = "550 nobody"

    courier.turn()

    assert Message.objects.get().outcome == "The mail server rejected the recipients: 550."


def test_without_a_mail_server_a_message_says_so(settings, courier) -> None:
    settings.EMAIL_HOST = ""
    put(mailbox())

    courier.turn()

    assert "TREBUCHET_SMTP" in Message.objects.get().outcome


def test_an_internal_target_receives_nothing(settings, sink, courier) -> None:
    settings.TREBUCHET_ALERT_TARGETS = []
    put(hook(sink))

    courier.turn()

    assert sink.received == []
    assert "https" in Message.objects.get().outcome


def test_secrets_are_in_no_log_and_no_outcome(sink, courier, caplog) -> None:
    caplog.set_level(logging.DEBUG)
    put(hook(sink, secret="s3cret", url=sink.url("/t0ken")))
    put(Channel.objects.create(name="no", kind="webhook", url="http://127.0.0.1:1/t0ken"))
    sink.status = 500

    courier.turn()

    assert not any(word in caplog.text for word in ("s3cret", "t0ken"))
    assert not any("t0ken" in each.outcome for each in Message.objects.all())


def test_a_message_that_cannot_be_built_delays_nothing(sink, courier, clock) -> None:
    channel = hook(sink)
    Message.objects.create(channel=channel, created_ms=1, content={"status": "firing"})
    put(channel)

    for _ in range(REFUSED_TRIES_MAX + 1):
        courier.turn()
        clock.advance_ms(BACKOFF_MS_MAX)

    assert states() == ["failed", "sent"]


def test_a_dripping_peer_is_disconnected_after_the_time_limit(
    settings, courier, monkeypatch
) -> None:
    settings.TREBUCHET_ALERT_TARGETS = ["127.0.0.1"]
    monkeypatch.setattr(posting, "SECONDS_MAX", 0.3)
    listener = socket.create_server(("127.0.0.1", 0))
    gone = threading.Event()

    def drip() -> None:
        peer, _ = listener.accept()
        with peer:
            try:
                while not gone.wait(0.05):
                    peer.sendall(b"H")
            except OSError:
                return

    thread = threading.Thread(target=drip)
    thread.start()
    port = listener.getsockname()[1]
    put(Channel.objects.create(name="drip", kind="webhook", url=f"http://127.0.0.1:{port}/"))

    courier.turn()

    gone.set()
    thread.join()
    listener.close()
    assert Message.objects.get().state == "waiting"
    assert Message.objects.get().outcome.startswith("No response")


def test_a_disabled_channel_keeps_its_messages(sink, courier) -> None:
    channel = hook(sink, enabled=False)
    put(channel)
    courier.turn()
    assert states() == ["waiting"]

    Channel.objects.filter(pk=channel.pk).update(enabled=True)
    courier.turn()

    assert states() == ["sent"]


def test_heartbeats_arrive_only_while_the_collector_works(sink, clock) -> None:
    works = True
    kept = preferences()
    kept.heartbeat_url, kept.heartbeat_seconds = sink.url("/beat"), 60
    kept.save()
    beat = Heartbeat(clock.now_ms, lambda: int(clock.monotonic() * 1000), lambda: works)

    for _ in range(6):
        beat.turn()
        clock.advance_ms(30_000)
    assert len(sink.of("/beat")) == 3
    works = False
    clock.advance_ms(60_000)
    beat.turn()

    assert len(sink.of("/beat")) == 3
    assert preferences().heartbeat_ms is not None


def test_a_heartbeat_that_fails_is_shown(sink, clock) -> None:
    kept = preferences()
    kept.heartbeat_url = sink.url("/beat")
    kept.save()
    sink.status = 404

    beat = Heartbeat(clock.now_ms, lambda: 0, lambda: True)
    beat.turn()

    assert preferences().heartbeat_outcome == "404 Not Found"
    assert preferences().heartbeat_ms is None


def test_a_message_to_a_channel_of_an_unknown_kind_is_tried_once_and_delays_none(
    sink, courier
) -> None:
    put(Channel.objects.create(name="odd", kind="pigeon", url=sink.url()))
    put(hook(sink))

    courier.turn()
    courier.turn()

    assert states()[1] == "sent"
    assert len(sink.received) <= 2


def test_a_failure_after_a_delivery_holds_back_no_other_message(
    sink, courier, clock, monkeypatch
) -> None:
    def get(kind: str, default: int) -> int:
        if kind == "slack":
            raise KeyError("of a bug")
        return default

    monkeypatch.setattr(courier_module, "PACE_MS", SimpleNamespace(get=get))
    put(hook(sink, "slack", name="one"))
    put(hook(sink, name="two"))

    courier.turn()

    assert states() == ["waiting", "sent"]


def test_a_courier_continues_after_a_failed_turn(courier, monkeypatch) -> None:
    turns: list[int] = []
    monkeypatch.setattr(courier_module, "LOOK_EVERY_S", 0.001)

    def turn() -> None:
        turns.append(1)
        raise KeyError("of a bug")

    monkeypatch.setattr(courier, "turn", turn)
    courier.start()
    until(lambda: len(turns) >= 3, "a third turn")
    courier.end(PATIENCE_S)
