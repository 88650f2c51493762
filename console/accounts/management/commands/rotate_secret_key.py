"""`manage.py rotate_secret_key`: a new key for sessions; people stay signed in."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError

from console import secret_key
from console.audit.record import done_by_command

if TYPE_CHECKING:
    from django.core.management import CommandParser


class Command(BaseCommand):
    """Writes a new key; running processes use it after their next start."""

    help = (
        "Make a new key that signs sessions and known devices. What the old one signed stays valid "
        "(--forget: not, and everyone signs in again). Then restart the appliance."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "--forget",
            action="store_true",
            help="stop trusting the old keys, because one may have leaked",
        )

    def handle(self, *args: Any, forget: bool, **options: Any) -> None:
        if not settings.TREBUCHET_SECRET_KEY_FILE.exists():
            raise CommandError(
                "The key comes from TREBUCHET_SECRET_KEY: set another one there, and the old one "
                "in TREBUCHET_SECRET_KEY_FALLBACKS."
            )
        keys = secret_key.rotate(settings.TREBUCHET_SECRET_KEY_FILE, forget=forget)
        done_by_command("secret-key.rotate", "", after={"old keys": len(keys.fallbacks)})
        self.stdout.write(
            f"A new key signs after the next start; old keys still trusted: {len(keys.fallbacks)}."
        )
