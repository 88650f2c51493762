"""`manage.py allow_sql NAME`: lets somebody who is no administrator ask the lake in SQL."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.contrib.auth import get_user_model
from django.contrib.auth.models import Permission
from django.core.management.base import BaseCommand, CommandError

from console.audit.record import done_by_command

if TYPE_CHECKING:
    from django.core.management.base import CommandParser


class Command(BaseCommand):
    """Gives the permission, or takes it with --not."""

    help = "Let an account ask the lake in SQL; administrators may anyway."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("name")
        parser.add_argument(
            "--not", dest="is_taken", action="store_true", help="take the permission away"
        )

    def handle(self, *args: Any, name: str, is_taken: bool, **options: Any) -> None:
        account = get_user_model().objects.filter(username=name).first()
        if account is None:
            raise CommandError(f"There is no account named {name}.")
        permission = Permission.objects.get(codename="query_lake", content_type__app_label="sql")
        if is_taken:
            account.user_permissions.remove(permission)
        else:
            account.user_permissions.add(permission)
        done_by_command("account.sql", name, after={"may_query": not is_taken})
        may = "may not" if is_taken else "may"
        self.stdout.write(f"{name} {may} ask the lake in SQL.")
        if is_taken and account.is_staff:
            self.stdout.write("As an administrator, still so.")
