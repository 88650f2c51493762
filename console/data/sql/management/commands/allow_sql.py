"""`manage.py allow_sql NAME`: lets people without administrator rights query the lake."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.contrib.auth import get_user_model
from django.contrib.auth.models import Group, User
from django.core.management.base import BaseCommand, CommandError

from console.data.sql.rights import RightError, grant, take
from console.people.audit.record import done_by_command

if TYPE_CHECKING:
    from django.core.management.base import CommandParser


class Command(BaseCommand):
    """Grants the permission, or revokes it with --not."""

    help = "Let an account query the lake with SQL; administrators always can"

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("name")
        parser.add_argument(
            "--group", dest="is_group", action="store_true", help="NAME is the name of a group"
        )
        parser.add_argument(
            "--topics",
            nargs="+",
            metavar="TOPIC",
            help="limit access to these topics; * matches any characters (default: all topics)",
        )
        parser.add_argument(
            "--not", dest="is_revoked", action="store_true", help="revoke the permission"
        )

    def handle(self, *args: Any, name: str, is_revoked: bool, **options: Any) -> None:
        grantee: User | Group | None
        if options["is_group"]:
            grantee = Group.objects.filter(name=name).first()
        else:
            grantee = get_user_model().objects.filter(username=name).first()
        if grantee is None:
            what = "group" if options["is_group"] else "account"
            raise CommandError(f"No {what} is named {name}.")
        given = options["topics"]
        topics = None if given is None else tuple(given)
        if is_revoked:
            take(grantee)
        else:
            try:
                grant(grantee, topics)
            except RightError as error:
                raise CommandError(str(error)) from error
        after = {"may_query": not is_revoked, "topics": "*" if given is None else given}
        done_by_command("account.sql", name, after=after)
        can = "can no longer" if is_revoked else "can"
        about = "" if is_revoked or given is None else f" (topics: {', '.join(sorted(set(given)))})"
        self.stdout.write(f"{name} {can} query the lake with SQL{about}.")
        if isinstance(grantee, User) and grantee.is_staff and (is_revoked or given is not None):
            self.stdout.write("As an administrator, this account can still query all topics.")
