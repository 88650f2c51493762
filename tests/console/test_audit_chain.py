"""The chain of the audit log: any change of a row outside of the console is detected."""

from __future__ import annotations

from datetime import timedelta
from importlib import import_module
from io import StringIO

import pytest
from django.apps import apps
from django.core.management import CommandError, call_command
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from console.people.audit import record, verifying
from console.people.audit.models import Entry, Link
from console.people.audit.verifying import prune, verify

pytestmark = pytest.mark.django_db


def entries(count: int = 4) -> list[Entry]:
    """Write entries as changes do: before the change, and again with its outcome."""
    for number in range(count):
        entry = Entry.objects.create(
            action="topic.update",
            subject=f"Orders{number}",
            actor_name="ada",
            before={"perm": 6, 1: ("a", 2.5)},
            after={"perm": 4},
        )
        entry.outcome = Entry.Outcome.DONE
        entry.save(update_fields=["outcome"])
    return list(Entry.objects.order_by("pk"))


def broken() -> str:
    return "\n".join(verify().breaks)


def test_the_consoles_output_is_complete(actors, brokers) -> None:
    brokers.add_topic("Orders")
    actors.admin.post(reverse("topics:delete", args=["Orders"]), {"name": "Orders"})
    for number in range(7):
        form = {"username": "rita", "password": "wrong"}
        Client().post(reverse("accounts:sign-in"), form, REMOTE_ADDR=f"10.1.2.{number}")

    finding = verify()

    assert finding.breaks == []
    assert finding.links == Link.objects.count() > finding.entries == Entry.objects.count()


@pytest.mark.parametrize(
    "changed",
    [
        {"actor_name": "rita"},
        {"subject": "Other"},
        {"after": {"perm": 6}},
        {"before": None},
        {"outcome": "failed"},
        {"at": timezone.now() - timedelta(days=1)},
        {"address": "10.0.0.1"},
    ],
)
def test_a_changed_entry_is_named(changed) -> None:
    second = entries()[1]

    Entry.objects.filter(pk=second.pk).update(**changed)

    assert f"Entry {second.pk} (" in broken()
    assert "doesn't match link 4" in broken()
    assert verify().broken == 1


def test_a_removed_or_inserted_entry_is_named() -> None:
    second = entries()[1]
    Entry.objects.filter(pk=second.pk).delete()
    Entry.objects.bulk_create([Entry(action="topic.create", subject="Forged")])
    forged = Entry.objects.get(subject="Forged")

    assert f"Entry {second.pk} is missing, but link 4 exists." in broken()
    assert f"Entry {forged.pk} (" in broken()
    assert "it was inserted" in broken()


def test_a_changed_or_removed_link_breaks_the_chain_at_its_position() -> None:
    entries()
    Link.objects.filter(number=3).update(digest="0" * 64)
    assert "Link 3 (of entry" in broken()

    Link.objects.filter(number=3).delete()
    assert "Links 3 to 3 are missing." in broken()


def test_a_missing_first_part_without_a_pruning_is_detected() -> None:
    kept = entries()[1:]
    Entry.objects.exclude(pk__in=[each.pk for each in kept]).delete()
    Link.objects.filter(number__lte=2).delete()

    assert "Links before 3 are missing, and no pruning was recorded." in broken()


def test_a_rewritten_or_truncated_chain_is_detected_with_a_saved_link() -> None:
    last = entries()[-1]
    finding = verify()
    assert finding.last is not None
    noted = (finding.last, finding.last_hash)
    assert verify(noted).breaks == []

    Link.objects.filter(entry=last.pk).delete()
    Entry.objects.filter(pk=last.pk).delete()
    assert verify().breaks == []
    assert "the end was cut off" in "\n".join(verify(noted).breaks)

    entries(1)
    assert "Link 8 differs from the one given with --noted." in verify(noted).breaks


def test_pruning_by_age_leaves_a_chain_that_can_be_verified_from_its_anchor(monkeypatch) -> None:
    old = entries()
    later = timezone.now() + timedelta(days=100)
    monkeypatch.setattr(timezone, "now", lambda: later)
    entries(2)

    removed = prune(later - timedelta(days=50))

    assert removed == (4, 8)
    assert not Entry.objects.filter(pk__in=[each.pk for each in old]).exists()
    finding = verify()
    assert (finding.breaks, finding.first) == ([], 9)

    entry = Entry.objects.get(action="audit.prune")
    Entry.objects.filter(pk=entry.pk).update(after={**entry.after, "hash": "0" * 64})
    assert "Links before 9 are missing" in broken()


def test_an_entry_with_an_end_younger_than_its_start_stays_whole(monkeypatch) -> None:
    entry = Entry.objects.create(action="topic.create", subject="Slow")
    later = timezone.now() + timedelta(days=100)
    monkeypatch.setattr(timezone, "now", lambda: later)
    entry.outcome = Entry.Outcome.DONE
    entry.save()

    assert prune(later - timedelta(days=50)) == (0, 1)

    assert Entry.objects.filter(subject="Slow").exists()
    assert broken() == ""


def test_deleted_rejections_are_not_a_break_but_kept_ones_are(admin_account, monkeypatch) -> None:
    monkeypatch.setattr(record, "REFUSALS_KEPT", 5)
    monkeypatch.setattr(verifying, "REFUSALS_KEPT", 5)
    for number in range(12):
        form = {"username": "ada", "password": "wrong"}
        Client().post(reverse("accounts:sign-in"), form, REMOTE_ADDR=f"10.{number}.0.1")
    assert Entry.objects.count() == 5
    assert broken() == ""

    newest = Entry.objects.order_by("-pk")[0]
    Entry.objects.filter(pk=newest.pk).delete()

    assert f"Entry {newest.pk} is missing" in broken()


def test_a_deleted_account_breaks_nothing(actors, admin_account, brokers) -> None:
    actors.admin.post(reverse("people:invite"), {"name": "nina", "role": "viewer"})

    admin_account.delete()

    assert broken() == ""


def test_entries_from_before_the_chain_are_chained_by_the_migration() -> None:
    Entry.objects.bulk_create([Entry(action="topic.create", subject=str(n)) for n in range(3)])
    assert verify().broken == 3

    import_module("console.people.audit.migrations.0003_chain").chain_old_entries(apps, None)

    assert verify().links == 3
    assert broken() == ""
    entries(1)
    assert broken() == ""


def run(*arguments: str) -> str:
    out = StringIO()
    call_command("audit", *arguments, stdout=out)
    return out.getvalue()


def test_the_command_prints_the_last_link_and_fails_on_a_break() -> None:
    first = entries()[0]
    output = run("verify")
    noted = output.split("(store it elsewhere): ")[1].split()[0]
    assert "The chain is intact." in run("verify", "--noted", noted)

    Entry.objects.filter(pk=first.pk).update(actor_name="rita")

    with pytest.raises(CommandError, match="audit log was modified"):
        run("verify")
    with pytest.raises(CommandError, match="nothing was removed"):
        run("prune", "--days", "90")


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("prune", "--days", "3"), "Keep at least 30 days"),
        (("verify", "--noted", "7"), "--noted requires NUMBER:HASH"),
    ],
)
def test_the_command_reports_unsupported_actions(arguments, sentence) -> None:
    with pytest.raises(CommandError, match=sentence):
        run(*arguments)
