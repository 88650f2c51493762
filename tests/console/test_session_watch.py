"""Open sockets: each ends within seconds of its session, and follows its user's permissions."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from channels.db import database_sync_to_async
from django.contrib.auth import get_user_model
from django.contrib.auth.models import Group, Permission
from django.contrib.sessions.backends.db import SessionStore
from django.contrib.sessions.models import Session
from django.db import OperationalError
from django.test import Client
from django.urls import reverse
from django.utils import timezone
from django_otp.plugins.otp_totp.models import TOTPDevice

from console.accounts import session_watch
from console.accounts.actions import Action
from console.accounts.models import CustomRole, SignedIn
from console.accounts.roles import Role, give_role
from console.accounts.session_watch import EVERY_S, SessionWatch
from tests.console.conftest import PASSWORD
from tests.support.clock import ManualClock
from tests.support.long_timeouts import PATIENCE_S

if TYPE_CHECKING:
    from collections.abc import Callable

    from django.contrib.auth.models import User

    from console.accounts.rights import Rights

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.usefixtures("brokers"),
]


class Follower:
    """A socket's task, which records its messages."""

    def __init__(self, watch: SessionWatch, key: str, account: User) -> None:
        self.seen: list[Rights] = []
        self.is_over = False
        self._news = asyncio.Event()
        self.task = asyncio.create_task(self._run(watch, key, account))

    async def _run(self, watch: SessionWatch, key: str, account: User) -> None:
        async for rights in watch.rights(key, account.pk):
            self.seen.append(rights)
            self._news.set()
        self.is_over = True
        self._news.set()

    async def until(self, met: Callable[[], bool]) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while not met():
                self._news.clear()
                await self._news.wait()

    async def until_told(self) -> None:
        await self.until(lambda: bool(self.seen))

    async def until_other_than(self, before: Rights) -> None:
        await self.until(lambda: self.seen[-1] != before)


def signed_in(name: str = "reader") -> tuple[User, Client]:
    found = get_user_model().objects.filter(username=name).first()
    user = found or get_user_model().objects.create_user(name, password=PASSWORD)
    client = Client()
    client.post(reverse("accounts:sign-in"), {"username": name, "password": PASSWORD})
    return user, client


def ended_by_others(user: User, client: Client) -> None:
    _user, elsewhere = signed_in()
    answer = elsewhere.post(reverse("accounts:sessions-end"))
    assert answer.status_code == 302


def ended_alone(user: User, client: Client) -> None:
    row = SignedIn.objects.get(session_key=client.session.session_key)
    client.post(reverse("accounts:session-end", args=[row.pk]))


def ended_by_an_administrator(user: User, client: Client) -> None:
    administrator, browser = signed_in("ada")
    give_role(administrator, Role.ADMINISTRATOR)
    answer = browser.post(reverse("people:sessions-end", args=[user.pk]))
    assert answer.status_code == 302


def signed_out(user: User, client: Client) -> None:
    client.post(reverse("accounts:sign-out"))


def given_a_password(user: User, client: Client) -> None:
    user.set_password("nine lives of a purple cat")
    user.save()


def switched_off(user: User, client: Client) -> None:
    get_user_model().objects.filter(pk=user.pk).update(is_active=False)


def removed(user: User, client: Client) -> None:
    user.delete()


def expired(user: User, client: Client) -> None:
    Session.objects.update(expire_date=timezone.now())


ENDS = [
    *(ended_by_others, ended_alone, ended_by_an_administrator, signed_out, given_a_password),
    *(switched_off, removed, expired),
]


@pytest.mark.parametrize("end", ENDS, ids=lambda each: each.__name__)
async def test_an_ending_session_is_noticed(end) -> None:
    user, client = await database_sync_to_async(signed_in)()
    follower = Follower(SessionWatch(0.01), client.session.session_key, user)
    await follower.until_told()

    await database_sync_to_async(end)(user, client)

    await follower.until(lambda: follower.is_over)


async def test_an_administrator_without_the_required_second_step_watches_nothing(settings) -> None:
    settings.TREBUCHET_SECOND_STEP = "administrators"
    user, client = await database_sync_to_async(signed_in)()
    follower = Follower(SessionWatch(0.01), client.session.session_key, user)
    await follower.until_told()

    await database_sync_to_async(give_role)(user, Role.ADMINISTRATOR)

    await follower.until(lambda: follower.is_over)


async def test_removing_a_second_step_ends_the_session_that_needs_it(settings) -> None:
    user, client = await database_sync_to_async(signed_in)("ada")
    await database_sync_to_async(give_role)(user, Role.ADMINISTRATOR)
    await database_sync_to_async(TOTPDevice.objects.create)(user=user)
    settings.TREBUCHET_SECOND_STEP = "administrators"
    follower = Follower(SessionWatch(0.01), client.session.session_key, user)
    await follower.until_told()

    await database_sync_to_async(TOTPDevice.objects.all().delete)()

    await follower.until(lambda: follower.is_over)


def limited(user: User) -> None:
    give_role(user, Role.LIMITED)


def made_operator(user: User) -> None:
    give_role(user, Role.OPERATOR)


def made_administrator(user: User) -> None:
    give_role(user, Role.ADMINISTRATOR)


def in_a_group_of_operators(user: User) -> None:
    group = Group.objects.create(name="operators")
    group.permissions.add(Permission.objects.get(codename="operate"))
    user.groups.add(group)


def given_a_role(user: User) -> None:
    role = CustomRole.objects.create(name="one", actions=["message.read"], topics=["orders"])
    role.members.add(user)


def widened_role(user: User) -> None:
    CustomRole.objects.update(topics=["orders", "bills"])


def role_without_them(user: User) -> None:
    CustomRole.objects.get().members.clear()


CHANGES = [made_operator, made_administrator, limited, given_a_role, in_a_group_of_operators]


async def test_changed_permissions_are_announced() -> None:
    user, client = await database_sync_to_async(signed_in)()
    follower = Follower(SessionWatch(0.01), client.session.session_key, user)
    await follower.until_told()

    for change in CHANGES:
        before = follower.seen[-1]
        await database_sync_to_async(change)(user)
        await follower.until_other_than(before)
    await ended(follower)


async def test_a_changed_or_deleted_role_is_announced_to_its_members() -> None:
    user, client = await database_sync_to_async(signed_in)()
    await database_sync_to_async(given_a_role)(user)
    follower = Follower(SessionWatch(0.01), client.session.session_key, user)

    await follower.until_told()
    assert not follower.seen[-1].may(Action.READ, "bills")
    await database_sync_to_async(widened_role)(user)
    await follower.until(lambda: follower.seen[-1].may(Action.READ, "bills"))
    await database_sync_to_async(role_without_them)(user)
    await follower.until(lambda: not follower.seen[-1].may(Action.READ, "orders"))
    await ended(follower)


async def test_a_session_that_ended_before_it_was_watched_is_noticed() -> None:
    user, client = await database_sync_to_async(signed_in)()
    key = client.session.session_key
    await database_sync_to_async(SessionStore(session_key=key).delete)()

    follower = Follower(SessionWatch(0.01), key, user)

    await follower.until(lambda: follower.is_over)
    assert follower.seen == []


async def test_sessions_unreadable_for_long_count_as_ended(monkeypatch) -> None:
    user, client = await database_sync_to_async(signed_in)()
    now = [0.0]
    watch = SessionWatch(0.01, lambda: now[0])
    follower = Follower(watch, client.session.session_key, user)
    await follower.until_told()
    readings = asyncio.Event()

    def unreadable(_places: Any) -> Any:
        asyncio.run_coroutine_threadsafe(noted(), loop)
        raise OperationalError("disk I/O error")

    async def noted() -> None:
        readings.set()

    loop = asyncio.get_running_loop()
    monkeypatch.setattr(session_watch, "session_states", unreadable)
    for second in (1.0, 20.0):
        now[0] = second
        readings.clear()
        await asyncio.wait_for(readings.wait(), PATIENCE_S)
    assert not follower.is_over

    now[0] = session_watch.UNREADABLE_S_MAX + 1
    await follower.until(lambda: follower.is_over)


async def ended(follower: Follower) -> None:
    follower.task.cancel()
    await asyncio.gather(follower.task, return_exceptions=True)


async def test_no_one_is_looked_up_once_the_last_socket_is_closed(monkeypatch) -> None:
    user, client = await database_sync_to_async(signed_in)()
    watch = SessionWatch(0.01)
    followers = [Follower(watch, client.session.session_key, user) for _ in range(2)]
    for each in followers:
        await each.until_told()

    for each in followers:
        await ended(each)

    assert [task.get_name() for task in asyncio.all_tasks()].count("session watch") == 0


async def test_a_hundred_sockets_cost_as_many_queries_as_one(
    django_assert_max_num_queries: Any,
) -> None:
    user, client = await database_sync_to_async(signed_in)()
    places = [(client.session.session_key, user.pk)] + [(f"key-{n}", n) for n in range(100)]

    def read() -> None:
        with django_assert_max_num_queries(6):
            assert len(session_watch.session_states(places)) == 1

    await database_sync_to_async(read)()


def test_a_change_is_noticed_within_a_second() -> None:
    assert EVERY_S <= 1.0


async def test_unreadable_sessions_end_their_sockets(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    user, client = await database_sync_to_async(signed_in)()
    clock = ManualClock()
    follower = Follower(SessionWatch(0.001, clock.monotonic), client.session.session_key, user)
    await follower.until_told()

    def fail(_: object) -> None:
        clock.advance_ms(1_000)
        raise KeyError("of a bug")

    monkeypatch.setattr(session_watch, "session_states", fail)

    await follower.until(lambda: follower.is_over)
