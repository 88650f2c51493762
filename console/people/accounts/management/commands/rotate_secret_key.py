"""`manage.py rotate_secret_key`: replace the key that signs sessions; people stay signed in."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError

from console import secret_key
from console.people.audit.record import done_by_command

if TYPE_CHECKING:
    from django.core.management import CommandParser


class Command(BaseCommand):
    """Writes a new key; running processes use it after they restart."""

    help = (
        "Create a new key for signing sessions and known devices. Existing signatures stay valid "
        "unless --forget is given. Restart the appliance afterwards"
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "--forget",
            action="store_true",
            help="stop trusting old keys, for example after a leak; everyone has to sign in again",
        )

    def handle(self, *args: Any, forget: bool, **options: Any) -> None:
        if not settings.TREBUCHET_SECRET_KEY_FILE.exists():
            raise CommandError(
                "The key comes from TREBUCHET_SECRET_KEY. Set a new one there and move the old one "
                "to TREBUCHET_SECRET_KEY_FALLBACKS."
            )
        keys = secret_key.rotate(settings.TREBUCHET_SECRET_KEY_FILE, forget=forget)
        done_by_command("secret-key.rotate", "", after={"old keys": len(keys.fallbacks)})
        self.stdout.write(
            f"The new key is used after a restart. Old keys still trusted: {len(keys.fallbacks)}."
        )
