"""Three actors in front of one broker: an administrator, a reader, a stranger."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest
from django.contrib.auth import get_user_model
from django.test import Client

from console.gateway import access
from console.gateway.fake import FakeGateway
from console.overview.history import history

if TYPE_CHECKING:
    from collections.abc import Iterator

    from django.contrib.auth.models import User

PASSWORD = "correct horse battery"


@dataclass(frozen=True)
class Actors:
    """A browser each. A stranger has no account; a reader may look; an administrator may change."""

    admin: Client
    reader: Client
    stranger: Client


@pytest.fixture
def brokers(settings) -> Iterator[FakeGateway]:
    """The gateway of the pages under test, replaced at its protocol."""
    settings.TREBUCHET_GATEWAY = "console.gateway.fake.FakeGateway"
    access.gateway.cache_clear()
    history.clear()
    gateway = access.gateway()
    assert isinstance(gateway, FakeGateway)
    yield gateway
    access.gateway.cache_clear()


@pytest.fixture
def quick_passwords(settings) -> None:
    """Argon2 is slow on purpose; accounts of tests need not be safe."""
    settings.PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]


@pytest.fixture
def admin_account(db, quick_passwords) -> User:
    return get_user_model().objects.create_superuser("ada", password=PASSWORD)


@pytest.fixture
def reader_account(db, quick_passwords) -> User:
    return get_user_model().objects.create_user("rita", password=PASSWORD)


@pytest.fixture
def actors(admin_account, reader_account) -> Actors:
    admin, reader = Client(), Client()
    admin.force_login(admin_account)
    reader.force_login(reader_account)
    return Actors(admin, reader, Client())
