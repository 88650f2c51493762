"""`manage.py unlock_sign_in`: unlock accounts after too many failed sign-ins."""

from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand

from console.accounts.models import FailedSignIn
from console.people.audit.record import done_by_command


class Command(BaseCommand):
    """Deletes all counters of failed sign-ins."""

    help = "Delete all counters of failed sign-ins, so that no account stays locked out"

    def handle(self, *args: Any, **options: Any) -> None:
        forgotten, _by_model = FailedSignIn.objects.all().delete()
        done_by_command("account.unlock", "", after={"counters": forgotten})
        self.stdout.write(f"Deleted {forgotten} counters of failed sign-ins.")
