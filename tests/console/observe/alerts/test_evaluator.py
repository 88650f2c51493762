"""Evaluator: alerts from recorded series and verdicts, across restarts and clock changes."""

from __future__ import annotations

import pytest
from django.db import OperationalError
from msgspec import structs

from console.observe.alerts import evaluator as evaluator_module, notices
from console.observe.alerts.evaluator import ENDED_MAX, MESSAGES_KEPT_MS, OPEN_MAX, end_all, forget
from console.observe.alerts.models import (
    Alert,
    Message,
    Preferences,
    Rule,
    Silence,
    Thread,
    Window,
    preferences,
)
from console.observe.alerts.notices import BETWEEN_MS_MIN, COMBINED_FROM, WAITING_MAX
from console.observe.alerts.wording import words_of
from console.observe.history import metrics
from console.observe.history.metrics import Subject
from console.observe.history.tiers import DAY_MS, MINUTE_MS
from tests.console.observe.alerts.support import (
    GROUP,
    Rounds,
    about_verdicts,
    channel,
    outbox_messages,
    threshold,
    verdict,
)

pytestmark = pytest.mark.django_db


def states() -> list[str]:
    return [each.state for each in Alert.objects.order_by("id")]


def test_a_group_that_lags_fires_once_and_is_resolved(rounds: Rounds) -> None:
    threshold(channel())

    rounds.pass_minutes([10, 500, 700, 900])
    alert = Alert.objects.get()
    assert (alert.state, alert.name, alert.evidence["value"]) == ("firing", "billing", 900)
    assert outbox_messages() == [("firing", 1, 0)]

    rounds.pass_minutes([900, 80, 80, 80, 20, 20, 20])
    assert states() == ["resolved"]
    assert outbox_messages() == [("firing", 1, 0), ("resolved", 0, 1)]


def test_a_peak_that_ends_in_time_leaves_nothing(rounds: Rounds) -> None:
    threshold(channel())

    rounds.pass_minutes([500, 500, 90, 500, 500, 20])

    assert states() == []
    assert outbox_messages() == []


def test_a_gap_neither_fires_nor_resolves(rounds: Rounds) -> None:
    threshold(channel())

    rounds.pass_minutes([500, None, None, 500])
    assert states() == ["pending"]
    rounds.pass_minutes([500, None, None, None])

    assert states() == ["firing"]


def test_below_and_missing_are_thresholds_too(rounds: Rounds) -> None:
    figures = {"series": "group/members/members", "for_minutes": 0}
    threshold(name="few", compare="below", fires_at=2, clears_at=3, **figures)
    threshold(name="gone", compare="missing", **figures)

    rounds.pass_minute(1, metric=metrics.MEMBERS)
    assert [each.rule_name for each in Alert.objects.all()] == ["few"]
    rounds.pass_minute(None)

    assert {each.rule_name for each in Alert.objects.all()} == {"few", "gone"}


def test_a_rule_receives_its_verdicts(rounds: Rounds) -> None:
    about_verdicts(name="urgent")
    about_verdicts(name="of shop", least="warn", name_pattern="shop-*")
    about_verdicts(name="stuck", least="warn", verdicts=["queue-stuck"])

    rounds.pass_minute(verdicts=[verdict(), verdict("shop-a", "warn")])

    found = sorted(Alert.objects.values_list("rule_name", "name", "severity"))
    assert found == [("of shop", "shop-a", "warn"), ("urgent", "billing", "bad")]


def test_old_verdicts_resolve_nothing(rounds: Rounds) -> None:
    about_verdicts(channel())
    rounds.pass_minute(verdicts=[verdict()])

    for _ in range(5):
        rounds.now_ms += MINUTE_MS
        rounds.monotonic_ms += MINUTE_MS
        rounds.evaluator.look(rounds.now_ms)

    assert states() == ["firing"]


def test_a_restart_continues_at_its_position_and_reports_nothing_twice(rounds: Rounds) -> None:
    threshold(channel())
    rounds.pass_minutes([500, 500])
    rounds.restart()
    rounds.pass_minute(500)
    assert states() == ["firing"]

    rounds.restart(away_ms=30 * MINUTE_MS)
    rounds.pass_minutes([500, 500])

    assert outbox_messages() == [("firing", 1, 0)]


def test_unobserved_time_does_not_count(rounds: Rounds) -> None:
    threshold(channel(), for_minutes=30)
    rounds.pass_minute(500)

    rounds.restart(away_ms=DAY_MS)
    rounds.pass_minute(500)

    assert states() == ["pending"]


@pytest.mark.parametrize("step_ms", [-DAY_MS, DAY_MS])
def test_a_clock_step_changes_no_duration(rounds: Rounds, step_ms: int) -> None:
    rule = threshold(channel(), repeat_minutes=60)
    rounds.pass_minute(500)
    rounds.now_ms += step_ms
    rounds.pass_minute(500)
    assert states() == ["pending"]
    rounds.pass_minute(500)
    assert states() == ["firing"]

    rounds.now_ms -= step_ms
    rounds.pass_minutes([500] * 59)
    assert outbox_messages() == [("firing", 1, 0)]
    rounds.now_ms += step_ms
    rounds.pass_minutes([0, 0, 0])

    alert = Alert.objects.get(rule=rule)
    assert alert.state == "resolved"
    assert alert.ended_ms is not None
    assert alert.fired_ms is not None
    assert alert.ended_ms >= alert.fired_ms


def test_a_lasting_alert_is_reported_again_after_the_repeat_interval(rounds: Rounds) -> None:
    threshold(channel(), repeat_minutes=30, for_minutes=0)

    rounds.pass_minutes([500] * 62)

    assert outbox_messages() == [("firing", 1, 0)] * 3
    repeats = [each.content["repeat"] for each in Message.objects.order_by("id")]
    assert repeats == [False, True, True]


def test_a_flapping_alert_causes_no_storm(rounds: Rounds) -> None:
    threshold(channel(), for_minutes=0, clear_minutes=0)

    rounds.pass_minutes([500, 0] * 60)

    assert len(outbox_messages()) <= 120 * MINUTE_MS / BETWEEN_MS_MIN + 1
    assert Alert.objects.filter(state="firing").count() == 0


def test_many_threads_at_once_are_one_message(rounds: Rounds) -> None:
    threshold(channel(), for_minutes=0)
    some = [GROUP._replace(name=f"group-{number}") for number in range(COMBINED_FROM + 5)]

    rounds.pass_minute(500, subjects=some)

    assert outbox_messages() == [("firing", len(some), 0)]
    assert set(Alert.objects.values_list("announced", flat=True)) == {True}


@pytest.mark.parametrize(
    ("group_by", "messages"),
    [("alert", 4), ("group", 2), ("topic", 2), ("broker", 1), ("rule", 1)],
)
def test_grouping_puts_alerts_into_messages(rounds: Rounds, group_by: str, messages: int) -> None:
    about_verdicts(channel(), group_by=group_by)
    found = [
        structs.replace(verdict(f"{group}@{topic}"), kind=metrics.PROGRESS)
        for group in ("billing", "fraud")
        for topic in ("Orders", "Payments")
    ]

    rounds.pass_minute(verdicts=found)

    assert len(outbox_messages()) == messages
    assert sum(firing for _, firing, _ in outbox_messages()) == 4


def test_a_silence_holds_the_message_until_it_ends(rounds: Rounds) -> None:
    rule = about_verdicts(channel())
    Silence.objects.create(
        rule=rule,
        thread="dead-letters broker-a billing",
        about="billing",
        began_ms=rounds.now_ms,
        until_ms=rounds.now_ms + 10 * MINUTE_MS,
        by="ada",
    )

    for _ in range(9):
        rounds.pass_minute(verdicts=[verdict()])
    assert Alert.objects.get().muted == "silence"
    assert outbox_messages() == []
    rounds.pass_minute(verdicts=[verdict()])

    assert outbox_messages() == [("firing", 1, 0)]


def test_resolutions_in_maintenance_were_never_announced(rounds: Rounds) -> None:
    about_verdicts(channel())
    Window.objects.create(
        name="move",
        kind="weekly",
        zone="UTC",
        begins="00:00",
        minutes=1440,
        weekdays=list(range(7)),
    )

    rounds.pass_minute(verdicts=[verdict()])
    assert Alert.objects.get().muted == "window"
    rounds.pass_minute()

    assert states() == ["resolved"]
    assert outbox_messages() == []


def test_a_resolution_is_announced_in_maintenance_if_the_start_was(rounds: Rounds) -> None:
    about_verdicts(channel())
    rounds.pass_minute(verdicts=[verdict()])
    Window.objects.create(
        name="move",
        kind="weekly",
        zone="UTC",
        begins="00:00",
        minutes=1440,
        weekdays=list(range(7)),
    )

    for _ in range(6):
        rounds.pass_minute()

    assert outbox_messages() == [("firing", 1, 0), ("resolved", 0, 1)]


def test_a_disabled_rule_resolves_its_alerts_and_reports_it(rounds: Rounds) -> None:
    rule = about_verdicts(channel())
    rounds.pass_minute(verdicts=[verdict()])
    Rule.objects.filter(pk=rule.pk).update(enabled=False)

    for _ in range(6):
        rounds.pass_minute(verdicts=[verdict()])

    assert Alert.objects.get().ended_why == "rule"
    assert outbox_messages() == [("firing", 1, 0), ("resolved", 0, 1)]


def test_a_rule_with_new_subjects_resolves_its_old_alerts(rounds: Rounds) -> None:
    rule = about_verdicts(channel())
    rounds.pass_minute(verdicts=[verdict()])
    rule.name_pattern = "shop-*"
    rule.save()

    rounds.pass_minute(verdicts=[verdict()])

    assert Alert.objects.get().ended_why == "rule"


def test_without_a_channel_alerts_are_kept_and_a_later_channel_is_notified(rounds: Rounds) -> None:
    rule = about_verdicts()
    rounds.pass_minute(verdicts=[verdict()])
    assert states() == ["firing"]

    rule.channels.add(channel())
    rounds.pass_minute(verdicts=[verdict()])

    assert outbox_messages() == [("firing", 1, 0)]


def test_a_channel_that_accepts_nothing_gets_one_message_for_everything(rounds: Rounds) -> None:
    deaf = channel()
    about_verdicts(deaf)
    for _ in range(WAITING_MAX):
        Message.objects.create(channel=deaf, created_ms=0)

    rounds.pass_minute(verdicts=[verdict()])

    waiting = Message.objects.filter(state="waiting").get()
    assert waiting.content["left_out"] == WAITING_MAX + 1
    assert waiting.content["firing"] == 1


def test_the_number_of_a_rules_alerts_is_limited(rounds: Rounds, monkeypatch) -> None:
    monkeypatch.setattr(evaluator_module, "OPEN_MAX", 3)
    threshold(for_minutes=0)
    some = [GROUP._replace(name=f"group-{number}") for number in range(5)]

    rounds.pass_minute(500, subjects=some)
    rounds.pass_minute(500, subjects=some)

    assert OPEN_MAX > 3
    assert Alert.objects.count() == 3
    assert "2 alerts beyond" in Preferences.objects.get().looked_problem


def test_database_problems_wait_for_the_next_round(rounds: Rounds, monkeypatch) -> None:
    threshold(channel(), for_minutes=0)

    def broken(*_arguments: object) -> None:
        raise OperationalError("database is locked")

    with monkeypatch.context() as patch:
        patch.setattr(evaluator_module, "announce", broken)
        rounds.pass_minute(500)
    assert states() == []
    rounds.pass_minute(500)

    assert states() == ["firing"]
    assert outbox_messages() == [("firing", 1, 0)]


def test_old_alerts_and_messages_are_deleted_but_not_open_ones(rounds: Rounds) -> None:
    assert ENDED_MAX > 1_000
    place = channel()
    kept = preferences()
    now = rounds.now_ms + MESSAGES_KEPT_MS * 10
    subject = {"rule_name": "x", "what": "x", "kind": "group", "broker": "b", "name": "n"}
    for state, ended in (("resolved", 5), ("resolved", now - DAY_MS), ("firing", None)):
        Alert.objects.create(
            **subject, thread="x", state=state, severity="bad", began_ms=1, ended_ms=ended
        )
    for state, created in (("sent", 5), ("sent", now), ("waiting", 5)):
        Message.objects.create(channel=place, created_ms=created, state=state)

    forget(kept.keep_days, now)

    assert sorted(states()) == ["firing", "resolved"]
    assert sorted(Message.objects.values_list("state", "created_ms")) == [
        ("sent", now),
        ("waiting", 5),
    ]


def test_silent_threads_are_dropped(rounds: Rounds) -> None:
    about_verdicts(channel())
    rounds.pass_minute(verdicts=[verdict()])
    assert Thread.objects.count() == 1

    for _ in range(12):
        rounds.pass_minute()

    assert Thread.objects.count() == 0


def test_ending_all_sessions_leaves_no_pending_alert(rounds: Rounds) -> None:
    rule = threshold(channel())
    rounds.pass_minute(500)

    end_all(rule, rounds.now_ms)

    assert states() == []


def test_subjects_on_several_brokers_are_separate_alerts(rounds: Rounds) -> None:
    threshold(for_minutes=0, broker_pattern="broker-a")
    other = Subject(metrics.GROUP, "broker-b", "billing")

    rounds.pass_minute(500, subjects=[GROUP, other])

    assert [each.broker for each in Alert.objects.all()] == ["broker-a"]


def test_an_alert_names_its_evidence_but_no_message_key(rounds) -> None:
    about_verdicts(channel())
    names = {"message": "7F01", "times": "3", "key": "ada@example.com"}

    rounds.pass_minute(verdicts=[structs.replace(verdict(), names=names)])

    alert = Alert.objects.get()
    assert "Message 7F01 was redelivered 3 times." in words_of(alert).evidence
    assert "ada@example.com" not in str(alert.evidence)


def test_a_failing_rule_is_named_undone_and_does_not_keep_others_from_firing(
    rounds: Rounds, monkeypatch: pytest.MonkeyPatch
) -> None:
    bad, good = threshold(channel("one"), name="bad"), threshold(channel("two"), name="good")
    announce = notices.announce

    def fail_for_one(rule: Rule, passed: int, now_ms: int) -> None:
        if rule.pk == bad.pk:
            raise KeyError("of a bug")
        announce(rule, passed, now_ms)

    monkeypatch.setattr(evaluator_module, "announce", fail_for_one)
    rounds.pass_minutes([500, 700, 900])

    assert {each.rule_id for each in Alert.objects.all()} == {good.pk}
    assert "bad: not applied" in preferences().looked_problem
    assert rounds.evaluator.is_well()


def test_a_round_that_fails_for_an_unknown_reason_is_repeated(
    rounds: Rounds, monkeypatch: pytest.MonkeyPatch
) -> None:
    threshold(channel())

    def fail(*_: object) -> None:
        raise KeyError("of a bug")

    with monkeypatch.context() as patch:
        patch.setattr(evaluator_module, "Observation", fail)
        rounds.pass_minutes([500])
    rounds.pass_minutes([500, 700, 900])

    assert states() == ["firing"]
