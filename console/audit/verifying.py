"""Checking the chain of the audit, and pruning it so that it can still be checked."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from django.db import connection, transaction

from console.audit.chain import FIRST, digest_of
from console.audit.models import Entry, Link
from console.audit.record import REFUSALS_KEPT, done_by_command

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import datetime

PRUNE = "audit.prune"
ROWS_AT_ONCE = 1_000
BREAKS_TOLD_MAX = 20


@dataclass(slots=True)
class Finding:
    """What the chain is: how long, its last link, and where it breaks."""

    links: int = 0
    entries: int = 0
    first: int | None = None
    last: int | None = None
    last_hash: str = FIRST
    breaks: list[str] = field(default_factory=list)
    broken: int = 0

    def tell(self, sentence: str) -> None:
        """Count a break; the first ones are told."""
        self.broken += 1
        if len(self.breaks) < BREAKS_TOLD_MAX:
            self.breaks.append(sentence)


def verify(noted: tuple[int, str] | None = None) -> Finding:
    """Check every link against the one before, and every entry against its newest link.

    `noted` is number and hash of a link that somebody wrote down: it must still be there. A link
    before the first that is kept was pruned, and says nothing.
    """
    finding = Finding()
    # One state of both tables: others go on writing. SQLite makes them wait meanwhile.
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
            finding.tell(f"Links {previous.number + 1} to {link.number - 1} are missing.")
        elif link.previous != previous.hash:
            finding.tell(f"Link {link.number} does not follow link {previous.number}.")
        if link.hash != link.expected_hash():
            finding.tell(f"Link {link.number} (of entry {link.entry}) was changed.")
        if noted is not None and link.number == noted[0] and link.hash != noted[1]:
            finding.tell(f"Link {link.number} is another one than was noted.")
        newest[link.entry] = (link.number, link.digest)
        if link.is_refusal:
            refusals.add(link.entry)
        finding.links += 1
        previous = link
    if previous is not None:
        finding.last, finding.last_hash = previous.number, previous.hash
    if noted is not None and noted[0] > (finding.last or 0):
        finding.tell(f"Link {noted[0]}, which was noted, is missing: the end was cut off.")
    return newest, refusals


def _check_first(finding: Finding, link: Link) -> None:
    """Check that nothing is missing before the first link, but what a pruning says it removed."""
    if link.number == 1 and link.previous == FIRST:
        return
    pruned = Entry.objects.filter(action=PRUNE, outcome=Entry.Outcome.DONE).order_by("-pk").first()
    anchor = (pruned.after or {}) if pruned is not None else {}
    if (anchor.get("up_to"), anchor.get("hash")) != (str(link.number - 1), link.previous):
        finding.tell(f"Links before {link.number} are missing, and no pruning says so.")


def _match(finding: Finding, newest: dict[int, tuple[int, str]], refusals: set[int]) -> None:
    """Hold the entries against their links."""
    for entry in Entry.objects.order_by("pk").iterator(ROWS_AT_ONCE):
        finding.entries += 1
        number, digest = newest.pop(entry.pk, (0, ""))
        if not number:
            finding.tell(f"Entry {entry.pk} ({shown(entry)}) has no link: it was inserted.")
        elif digest != digest_of(entry):
            finding.tell(f"Entry {entry.pk} ({shown(entry)}) is not what link {number} says.")
    # Of refused attempts the newest are kept, so only older ones may be gone.
    kept = sorted(refusals)[-REFUSALS_KEPT:]
    for pk, (number, _digest) in sorted(newest.items()):
        if pk not in refusals or pk >= kept[0]:
            finding.tell(f"Entry {pk} is missing, which link {number} holds.")


def shown(entry: Entry) -> str:
    return f"{entry.at:%Y-%m-%d %H:%M:%S} {entry.action}"


def prune(before: datetime) -> tuple[int, int]:
    """Remove the oldest links, and the entries that have no others; return how many of each.

    The entry that says so holds number and hash of the last link removed: the anchor from which
    the rest can be checked.
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
    """Yield what a person reads of a finding."""
    yield from finding.breaks
    if finding.broken > len(finding.breaks):
        yield f"And {finding.broken - len(finding.breaks)} more."
    if finding.last is None:
        yield "The audit is empty."
        return
    yield f"{finding.entries} entries, links {finding.first} to {finding.last}."
    yield f"Last link, to note elsewhere: {finding.last}:{finding.last_hash}"
