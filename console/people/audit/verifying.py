"""Verifies the audit log's chain, and prunes it so that the rest can still be verified."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from django.db import connection, transaction

from console.people.audit.chain import FIRST, digest_of
from console.people.audit.models import Entry, Link
from console.people.audit.record import REFUSALS_KEPT, done_by_command

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import datetime

PRUNE = "audit.prune"
ROWS_AT_ONCE = 1_000
BREAKS_SHOWN_MAX = 20


@dataclass(slots=True)
class Finding:
    """The result of a verification: the chain's length, its last link and its breaks."""

    links: int = 0
    entries: int = 0
    first: int | None = None
    last: int | None = None
    last_hash: str = FIRST
    breaks: list[str] = field(default_factory=list)
    broken: int = 0

    def add_break(self, sentence: str) -> None:
        """Count a break, and keep the first ones."""
        self.broken += 1
        if len(self.breaks) < BREAKS_SHOWN_MAX:
            self.breaks.append(sentence)


def verify(noted: tuple[int, str] | None = None) -> Finding:
    """Check every link against the previous one, and every entry against its newest link.

    `noted` is the number and hash of a link recorded elsewhere, which must still exist. Links
    before the first remaining one were pruned and aren't checked.
    """
    finding = Finding()
    # Read both tables in one state while others write. SQLite blocks writers meanwhile.
    with transaction.atomic():
        if connection.vendor == "postgresql":
            with connection.cursor() as cursor:
                cursor.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        newest, refusals = _walk(finding, noted)
        _match(finding, newest, refusals)
    return finding


def _walk(
    finding: Finding, noted: tuple[int, str] | None
) -> tuple[dict[int, tuple[int, str]], set[int]]:
    """Follow the links; return the newest link of each entry, and the entries of refusals."""
    newest: dict[int, tuple[int, str]] = {}
    refusals: set[int] = set()
    previous: Link | None = None
    for link in Link.objects.iterator(ROWS_AT_ONCE):
        if previous is None:
            finding.first = link.number
            _check_first(finding, link)
        elif link.number != previous.number + 1:
            finding.add_break(f"Links {previous.number + 1} to {link.number - 1} are missing.")
        elif link.previous != previous.hash:
            finding.add_break(f"Link {link.number} doesn't follow link {previous.number}.")
        if link.hash != link.expected_hash():
            finding.add_break(f"Link {link.number} (of entry {link.entry}) was changed.")
        if noted is not None and link.number == noted[0] and link.hash != noted[1]:
            finding.add_break(f"Link {link.number} differs from the one given with --noted.")
        newest[link.entry] = (link.number, link.digest)
        if link.is_refusal:
            refusals.add(link.entry)
        finding.links += 1
        previous = link
    if previous is not None:
        finding.last, finding.last_hash = previous.number, previous.hash
    if noted is not None and noted[0] > (finding.last or 0):
        finding.add_break(f"Link {noted[0]}, given with --noted, is missing: the end was cut off.")
    return newest, refusals


def _check_first(finding: Finding, link: Link) -> None:
    """Check that only links which a pruning recorded are missing before the first one."""
    if link.number == 1 and link.previous == FIRST:
        return
    pruned = Entry.objects.filter(action=PRUNE, outcome=Entry.Outcome.DONE).order_by("-pk").first()
    anchor = (pruned.after or {}) if pruned is not None else {}
    if (anchor.get("up_to"), anchor.get("hash")) != (str(link.number - 1), link.previous):
        finding.add_break(f"Links before {link.number} are missing, and no pruning was recorded.")


def _match(finding: Finding, newest: dict[int, tuple[int, str]], refusals: set[int]) -> None:
    """Compare the entries with their links."""
    for entry in Entry.objects.order_by("pk").iterator(ROWS_AT_ONCE):
        finding.entries += 1
        number, digest = newest.pop(entry.pk, (0, ""))
        if not number:
            finding.add_break(f"Entry {entry.pk} ({shown(entry)}) has no link: it was inserted.")
        elif digest != digest_of(entry):
            finding.add_break(f"Entry {entry.pk} ({shown(entry)}) doesn't match link {number}.")
    # Only the newest refused attempts are kept, so older ones may be missing.
    kept = sorted(refusals)[-REFUSALS_KEPT:]
    for pk, (number, _digest) in sorted(newest.items()):
        if pk not in refusals or pk >= kept[0]:
            finding.add_break(f"Entry {pk} is missing, but link {number} exists.")


def shown(entry: Entry) -> str:
    return f"{entry.at:%Y-%m-%d %H:%M:%S} {entry.action}"


def prune(before: datetime) -> tuple[int, int]:
    """Remove the oldest links, and entries without other links; return how many of each.

    The entry about the pruning holds the number and hash of the last removed link, from which the
    rest can be verified.
    """
    with transaction.atomic():
        kept = Link.objects.filter(at__gte=before).order_by("number").first()
        gone = Link.objects.all()
        if kept is not None:
            gone = gone.filter(number__lt=kept.number)
        anchor = gone.order_by("-number").first()
        if anchor is None:
            return 0, 0
        still_held = Link.objects.filter(number__gt=anchor.number).values("entry")
        removed = Entry.objects.filter(pk__in=gone.values("entry")).exclude(pk__in=still_held)
        entries, links = removed.count(), gone.count()
        after = {
            "up_to": str(anchor.number),
            "hash": anchor.hash,
            "before": before.isoformat(),
            "entries": entries,
        }
        done_by_command(PRUNE, "", after=after)
        removed.delete()
        Link.objects.filter(number__lte=anchor.number).delete()
    return entries, links


def lines(finding: Finding) -> Iterator[str]:
    """Yield a verification's result as lines of text."""
    yield from finding.breaks
    if finding.broken > len(finding.breaks):
        yield f"{finding.broken - len(finding.breaks)} more breaks."
    if finding.last is None:
        yield "The audit log is empty."
        return
    yield f"{finding.entries} entries, links {finding.first} to {finding.last}."
    yield f"Last link (store it elsewhere): {finding.last}:{finding.last_hash}"
