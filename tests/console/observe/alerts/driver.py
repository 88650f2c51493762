"""A program for tests: an appliance's alerts with two hours of history, and fast rounds.

`prepare URL`: create the database, the history and a rule with a webhook. `rounds`: apply the rules
minute by minute and send the outbox, continuing where a killed process stopped. `now URL`: create a
rule over the history of these minutes, for the real collector. `over`: end that rule's alert.
"""

from __future__ import annotations

import os
import sys
import time

import django


def prepare(url: str, first_ms: int, lags: list[int], **rule: object) -> None:
    from django.core.management import call_command

    from console.observe.alerts.models import Channel, Rule
    from console.observe.history import metrics
    from console.observe.history.access import history_store
    from console.observe.history.metrics import Subject
    from tests.support.history_points import keep

    call_command("migrate", verbosity=0)
    subject = Subject(metrics.GROUP, "broker-a", "billing")
    keep(
        history_store(),
        first_ms,
        {(subject, metrics.LAG): [each for lag in lags for each in [lag] * 6]},
    )
    channel = Channel.objects.create(name="hook", kind="webhook", url=url, secret="s3cret")
    made = Rule.objects.create(
        name="lag", source="threshold", series="group/lag/lag", fires_at=100, clears_at=50, **rule
    )
    made.channels.add(channel)
    if os.environ.get("TREBUCHET_SMTP"):
        made.channels.add(
            Channel.objects.create(name="mail", kind="email", addresses=["ada@example.com"])
        )


def rounds() -> None:
    from console.observe.alerts.courier import Courier
    from console.observe.alerts.evaluator import Evaluator
    from console.observe.alerts.models import Message, preferences
    from console.observe.history.access import history_store
    from tests.console.observe.alerts.support import FIRST_MS

    now_ms = preferences().looked_ms or FIRST_MS
    evaluator = Evaluator(history_store(), lambda: now_ms)
    courier = Courier(lambda: now_ms, lambda: now_ms, lambda: True)
    while now_ms < FIRST_MS + MINUTES * 60_000:
        now_ms += 60_000
        evaluator.look(now_ms)
        courier.turn()
    while Message.objects.filter(state="waiting").exists():
        now_ms += 60_000
        courier.turn()
    sys.stdout.write("done\n")


PATTERN = [500] * 10 + [0] * 10
CYCLES = 6
MINUTES = len(PATTERN) * CYCLES


def main(word: str, *arguments: str) -> None:
    django.setup()
    from console.observe.alerts.models import Rule, Thread, preferences
    from tests.console.observe.alerts.support import FIRST_MS

    match word:
        case "prepare":
            prepare(arguments[0], FIRST_MS, PATTERN * CYCLES, for_minutes=2, clear_minutes=2)
        case "rounds":
            rounds()
        case "now":
            began = int(time.time_ns() // 60_000_000_000) * 60_000 - 5 * 60_000
            prepare(arguments[0], began, [500] * 30, for_minutes=0)
            kept = preferences()
            kept.heartbeat_url = arguments[0].replace("/hook", "/beat")
            kept.save()
        case "over":
            Rule.objects.update(enabled=False)
            Thread.objects.update(quiet_ms=10**9)

        case _other:
            raise SystemExit(f"no such word: {word}")


if __name__ == "__main__":
    main(*sys.argv[1:])
