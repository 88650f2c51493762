"""`manage.py audit verify|prune`: verify the audit log's chain, or remove its oldest part."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

from django.core.management.base import BaseCommand, CommandError
from django.utils import timezone

from console.people.audit.verifying import lines, prune, verify

if TYPE_CHECKING:
    from django.core.management.base import CommandParser

DAYS_MIN = 30
HASH_DIGITS = 64


class Command(BaseCommand):
    """Verifies or prunes; exits with 1 if the chain is broken."""

    help = "Verify that the audit log wasn't modified, or remove its oldest entries"

    def add_arguments(self, parser: CommandParser) -> None:
        what = parser.add_subparsers(dest="what", required=True)
        verifying = what.add_parser(
            "verify", help="verify every entry; exit with 1 if the chain is broken"
        )
        verifying.add_argument(
            "--noted",
            metavar="NUMBER:HASH",
            help="a link that an earlier run printed as the last one, which must still exist",
        )
        pruning = what.add_parser("prune", help="remove the oldest entries")
        pruning.add_argument(
            "--days", type=int, required=True, help=f"number of days to keep, at least {DAYS_MIN}"
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
            raise CommandError("The audit log was modified. See the lines above.")
        self.stdout.write("The chain is intact.")

    def _prune(self, days: int) -> None:
        if days < DAYS_MIN:
            raise CommandError(f"Keep at least {DAYS_MIN} days.")
        finding = verify()
        if finding.broken:
            for line in lines(finding):
                self.stdout.write(line)
            raise CommandError("The audit log was modified, so nothing was removed.")
        entries, links = prune(timezone.now() - timedelta(days=days))
        self.stdout.write(f"Removed {entries} entries and {links} links.")


def parsed(text: str) -> tuple[int, str]:
    number, _colon, value = text.partition(":")
    if not number.isdecimal() or len(value) != HASH_DIGITS:
        raise CommandError("--noted requires NUMBER:HASH as printed by `audit verify`.")
    return int(number), value
