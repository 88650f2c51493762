"""Four actors with one broker: an administrator, an operator, a reader, a stranger."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec
import pytest
from django.contrib.auth import get_user_model
from django.test import Client
from django.utils import translation

from console.accounts.roles import Role, give_role
from console.connect.addresses import shared_addresses
from console.gateway import access
from console.gateway.fakes.cluster import FakeCluster
from console.lib.moment import now_ms
from console.observe.flow.pages import shared_flow
from console.observe.history.access import history_store
from console.observe.history.status import STATUS, Status
from console.observe.overview.services import shared_summary
from tests.analytics.lake.lakes import Lake
from tests.analytics.store_builder import StoreBuilder

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from django.contrib.auth.models import User

    from console.gateway.fakes.broker import FakeBroker

PASSWORD = "correct horse battery"


@dataclass(frozen=True)
class Actors:
    """One browser each. A stranger has no account; a reader is a viewer with read access."""

    admin: Client
    operator: Client
    reader: Client
    stranger: Client


@pytest.fixture(autouse=True)
def language() -> Iterator[None]:
    """Reset the language, which a page leaves set in its thread."""
    yield
    translation.deactivate()


@pytest.fixture
def brokers(settings, tmp_path) -> Iterator[FakeBroker]:
    """The fake brokers that pages under test see: they replace the gateway at its protocols."""
    settings.TREBUCHET_CONFIRMED_BROKERS_FILE = tmp_path / "confirmed_brokers.json"
    settings.TREBUCHET_HISTORY_FILE = tmp_path / "history.sqlite3"
    settings.TREBUCHET_GATEWAY = "console.gateway.fakes.gateway.fake_gateway"
    access.gateway.cache_clear()
    history_store.cache_clear()
    shared_flow.forget()
    shared_summary.forget()
    shared_addresses.forget()
    cluster = access.gateway().cluster
    assert isinstance(cluster, FakeCluster)
    yield cluster.broker
    access.gateway.cache_clear()
    history_store().database.close()
    history_store.cache_clear()


@pytest.fixture(scope="session")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A read-only lake with thirty messages of orders and bills."""
    directory = tmp_path_factory.mktemp("lake")
    builder = StoreBuilder(directory / "store").put_many(30, ("orders", "orders", "bills"))
    builder.write()
    made = Lake(directory / "lake", builder.root)
    made.take_all()
    return made.directory


@pytest.fixture
def collector(brokers) -> None:
    """A sampling collector, without which the overview shows nothing as good."""
    history_store().note(STATUS, msgspec.json.encode(Status(at_ms=now_ms(), process=None)))


@pytest.fixture
def quick_passwords(settings) -> None:
    """Replace Argon2, which is slow on purpose, because test accounts needn't be safe."""
    settings.PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]


@pytest.fixture
def admin_account(db, quick_passwords) -> User:
    return get_user_model().objects.create_superuser("ada", password=PASSWORD)


@pytest.fixture
def reader_account(db, quick_passwords) -> User:
    return get_user_model().objects.create_user("rita", password=PASSWORD)


@pytest.fixture
def operator_account(db, quick_passwords) -> User:
    account = get_user_model().objects.create_user("olga", password=PASSWORD)
    give_role(account, Role.OPERATOR)
    return account


@pytest.fixture
def limited_account(db, quick_passwords) -> User:
    account = get_user_model().objects.create_user("leo", password=PASSWORD)
    give_role(account, Role.LIMITED)
    return account


@pytest.fixture
def limited(limited_account) -> Client:
    """Return the browser of a user with only the permissions of the given custom roles."""
    browser = Client()
    browser.force_login(limited_account)
    return browser


@pytest.fixture
def actors(admin_account, operator_account, reader_account) -> Actors:
    admin, operator, reader = Client(), Client(), Client()
    admin.force_login(admin_account)
    operator.force_login(operator_account)
    reader.force_login(reader_account)
    return Actors(admin, operator, reader, Client())
