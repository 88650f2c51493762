"""The Go programs, built once, and a console user."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from django.contrib.auth import get_user_model

from console.accounts.roles import Role, give_role
from console.gateway import access
from tests.support import go_client

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from django.test import Client


@pytest.fixture(scope="session")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if go_client.missing():
        pytest.skip(f"{go_client.missing()} is missing")
    return go_client.build(tmp_path_factory.mktemp("go"))


@pytest.fixture
def viewer(namesrv: str, client: Client, settings: Any) -> Iterator[Client]:
    """A console user with the brokers of a name server."""
    settings.TREBUCHET_NAMESRV = [namesrv]
    access.gateway.cache_clear()
    user = get_user_model().objects.create_user("rita", password="correct horse battery")
    give_role(user, Role.VIEWER)
    client.force_login(user)
    yield client
    access.gateway.cache_clear()
