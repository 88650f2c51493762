"""Detects when sessions end or rights change, for sockets that stay open.

A socket outlives the request that opened it. Every EVERY_S, one task per process reads the state of
all sessions with open sockets at once. Only sockets whose state changed load their session again.
Changes made by other processes are detected too.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import defaultdict
from typing import TYPE_CHECKING, Any

from channels.db import database_sync_to_async
from django.contrib.auth import get_user_model
from django.contrib.sessions.models import Session
from django.db import DatabaseError
from django.utils import timezone
from django_otp.plugins.otp_totp.models import TOTPDevice

from console.accounts.models import CustomRole
from console.accounts.rights import rights_of
from console.accounts.sessions import account_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Collection, Mapping

    from console.accounts.rights import Rights

logger = logging.getLogger(__name__)

EVERY_S = 1.0
UNREADABLE_S_MAX = 30.0
"""Sessions count as ended when the database has been unreadable for this long."""

Place = tuple[str, int]
"""The key of a session, and the account that opened it."""
UNREAD = object()


class Follower:
    """An open socket: its session, its account, and their last known state."""

    def __init__(self, place: Place) -> None:
        self.place = place
        self.standing: object = UNREAD
        self.is_lost = False
        self.changed = asyncio.Event()


class SessionWatch:
    """Watches the sessions of open sockets. Event loop only."""

    def __init__(
        self,
        every_s: float = EVERY_S,
        monotonic: Callable[[], float] = time.monotonic,
        *,
        shared: Callable[[], object] = lambda: None,
    ) -> None:
        """`shared` reads other state that affects all sockets, to detect changes."""
        self._every_s = every_s
        self.shared = shared
        self._monotonic = monotonic
        self._followers: set[Follower] = set()
        self._task: asyncio.Task[None] | None = None
        self._read_at = 0.0

    async def rights(self, session_key: str | None, account_id: int) -> AsyncIterator[Rights]:
        """Yield the person's rights at once and after each change, until the session ends."""
        if not session_key:
            return
        follower = Follower((session_key, account_id))
        self._followers.add(follower)
        if self._task is None:
            self._read_at = self._monotonic()
            self._task = asyncio.get_running_loop().create_task(self._run(), name="session watch")
        try:
            while True:
                follower.changed.clear()
                rights = await self._rights_of(follower)
                if rights is None:
                    return
                yield rights
                await follower.changed.wait()
        finally:
            self._followers.discard(follower)
            if not self._followers and self._task is not None:
                self._task.cancel()
                self._task = None

    async def _rights_of(self, follower: Follower) -> Rights | None:
        while not follower.is_lost:
            try:
                found: Rights | None = await database_sync_to_async(rights_in)(follower.place)
            except DatabaseError:
                await asyncio.sleep(self._every_s)
            else:
                return found
        return None

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(self._every_s)
            places = {each.place for each in self._followers}
            try:
                found = await database_sync_to_async(self._session_states)(places)
            except Exception as error:  # noqa: BLE001  no socket may outlive its session
                self._unreadable(error)
                continue
            self._read_at = self._monotonic()
            for follower in self._followers:
                standing = found.get(follower.place)
                if standing != follower.standing:
                    follower.standing = standing
                    follower.changed.set()

    def _session_states(self, places: Collection[Place]) -> dict[Place, object]:
        shared = self.shared()
        return {place: (each, shared) for place, each in session_states(places).items()}

    def _unreadable(self, error: Exception) -> None:
        if self._monotonic() - self._read_at < UNREADABLE_S_MAX:
            return
        logger.warning("sessions unreadable, live views closed error=%s", error)
        for follower in self._followers:
            follower.is_lost = True
            follower.changed.set()


def rights_in(place: Place) -> Rights | None:
    """Return the current rights of a session, or None if it has ended."""
    session_key, account_id = place
    account = account_of(session_key)
    return None if account is None or account.pk != account_id else rights_of(account)


def session_states(places: Collection[Place]) -> dict[Place, object]:
    """Return comparable states of sessions and their people; ended sessions are left out."""
    keys = {key for key, _account in places}
    accounts = {account for _key, account in places}
    live = Session.objects.filter(session_key__in=keys, expire_date__gt=timezone.now())
    lasting = set(live.values_list("session_key", flat=True))
    known = account_states(accounts)
    return {place: known.get(place[1]) for place in places if place[0] in lasting}


def account_states(accounts: Collection[int]) -> Mapping[int, object]:
    """Return a comparable state of each account; deleted accounts are left out."""
    model = get_user_model()
    fields = ("pk", "is_active", "is_staff", "is_superuser", "password")
    rows: Mapping[int, list[Any]] = {
        row[0]: list(row) for row in model.objects.filter(pk__in=accounts).values_list(*fields)
    }
    beside: dict[int, set[tuple[Any, ...]]] = defaultdict(set)
    for name, query in (
        ("permission", model.user_permissions.through.objects.values_list("user", "permission")),
        (
            "group",
            model.groups.through.objects.values_list("user", "group", "group__permissions"),
        ),
        (
            "role",
            CustomRole.members.through.objects.values_list(
                "user", "customrole__actions", "customrole__topics", "customrole__groups"
            ),
        ),
        ("second step", TOTPDevice.objects.filter(confirmed=True).values_list("user", "pk")),
    ):
        for account, *values in query.filter(user__in=accounts):
            beside[account].add((name, *map(str, values)))
    return {account: (*row, frozenset(beside[account])) for account, row in rows.items()}
