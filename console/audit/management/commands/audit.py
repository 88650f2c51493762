"""`manage.py audit verify|prune`: checks the chain of the audit, removes its oldest part."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

from django.core.management.base import BaseCommand, CommandError
from django.utils import timezone

from console.audit.verifying import lines, prune, verify

if TYPE_CHECKING:
    from django.core.management.base import CommandParser

DAYS_MIN = 30
HASH_DIGITS = 64


class Command(BaseCommand):
    """Checks or prunes; a chain that is broken ends with exit code 1."""

    help = "Check that nobody has changed the audit, or remove what is older than some days."

    def add_arguments(self, parser: CommandParser) -> None:
        what = parser.add_subparsers(dest="what", required=True)
        verifying = what.add_parser("verify", help="check every entry; exit code 1 if one is wrong")
        verifying.add_argument(
            "--noted",
            metavar="NUMBER:HASH",
            help="the last link as an earlier run has printed it: it must still be there",
        )
        pruning = what.add_parser("prune", help="remove the oldest entries")
        pruning.add_argument(
            "--days", type=int, required=True, help=f"keep so many days, at least {DAYS_MIN}"
        )

    def handle(
        self,
        *args: Any,
        what: str,
        noted: str | None = None,
        days: int = DAYS_MIN,
        **options: Any,
    ) -> None:
        if what == "prune":
            self._prune(days)
            return
        finding = verify(None if noted is None else parsed(noted))
        for line in lines(finding):
            self.stdout.write(line)
        if finding.broken:
            raise CommandError("The audit is not as it was written.")
        self.stdout.write("The chain is whole.")

    def _prune(self, days: int) -> None:
        if days < DAYS_MIN:
            raise CommandError(f"The last {DAYS_MIN} days stay in any case.")
        finding = verify()
        if finding.broken:
            for line in lines(finding):
                self.stdout.write(line)
            raise CommandError("The audit is not as it was written; nothing was removed.")
        entries, links = prune(timezone.now() - timedelta(days=days))
        self.stdout.write(f"Removed: {entries} entries, {links} links.")


def parsed(text: str) -> tuple[int, str]:
    number, _colon, value = text.partition(":")
    if not number.isdecimal() or len(value) != HASH_DIGITS:
        raise CommandError("--noted takes NUMBER:HASH as `audit verify` prints it.")
    return int(number), value
