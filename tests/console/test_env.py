"""Settings from the environment: read, or rejected with a sentence that names the variable."""

from __future__ import annotations

import stat
from typing import TYPE_CHECKING

import pytest
from django.core.exceptions import ImproperlyConfigured

from console import secret_key
from console.env import Environment, HostPort

if TYPE_CHECKING:
    from pathlib import Path


def test_an_absent_or_blank_variable_means_its_default() -> None:
    env = Environment({"BLANK": "  "})

    assert env.text("ABSENT", "a") == "a"
    assert env.text("BLANK", "b") == "b"
    assert env.flag("BLANK", default=True) is True


@pytest.mark.parametrize(
    ("word", "value"), [("true", True), ("ON", True), ("0", False), ("No", False)]
)
def test_flags_accept_the_usual_words(word, value) -> None:
    assert Environment({"FLAG": word}).flag("FLAG", default=not value) is value


def test_an_invalid_flag_is_rejected() -> None:
    with pytest.raises(ImproperlyConfigured, match="FLAG is 'maybe'; expected true or false"):
        Environment({"FLAG": "maybe"}).flag("FLAG", default=False)


@pytest.mark.parametrize(
    "text", ["8000", "host", "host:", ":80", "host:0", "host:65536", "host:\uff180"]
)
def test_an_address_that_is_not_a_host_and_port_is_rejected(text) -> None:
    with pytest.raises(ImproperlyConfigured, match="WEB is"):
        Environment({"WEB": text}).host_port("WEB", "x:1")


def test_addresses_are_read() -> None:
    env = Environment({"WEB": "[::1]:80", "NAMESRV": "a:1; b:2;"})

    assert env.host_port("WEB", "x:1") == HostPort("::1", 80)
    assert env.host_ports("NAMESRV", "x:1") == [HostPort("a", 1), HostPort("b", 2)]
    assert str(HostPort("::1", 80)) == "[::1]:80"


def test_a_secret_comes_from_its_variable_or_else_from_its_file(tmp_path) -> None:
    file = tmp_path / "secret"
    file.write_text("from a file\nsecond line\n")

    assert Environment({"KEY": "direct", "KEY_FILE": str(file)}).secret("KEY") == "direct"
    assert Environment({"KEY_FILE": str(file)}).secret("KEY") == "from a file"
    assert Environment({}).secret("KEY") is None


def test_a_missing_or_empty_secret_file_is_named(tmp_path) -> None:
    empty = tmp_path / "empty"
    empty.write_text("\n")

    with pytest.raises(ImproperlyConfigured, match=r"KEY_FILE names .*can't be read"):
        Environment({"KEY_FILE": str(tmp_path / "absent")}).secret("KEY")
    with pytest.raises(ImproperlyConfigured, match=r"KEY_FILE names .*is empty"):
        Environment({"KEY_FILE": str(empty)}).secret("KEY")


def test_databases_are_read_from_urls(tmp_path) -> None:
    default = tmp_path / "default.sqlite3"
    postgres = Environment({"URL": "postgres://me:p%40ss@db:5433/console"}).database("URL", default)
    sqlite = Environment({"URL": "sqlite:////srv/console.db"}).database("URL", default)

    assert Environment({}).database("URL", default)["NAME"] == str(default)
    assert sqlite["NAME"] == "/srv/console.db"
    assert postgres["NAME"] == "console"
    assert postgres["PASSWORD"] == "p@ss"
    assert postgres["PORT"] == "5433"


def test_a_rejected_database_url_does_not_reveal_its_password(tmp_path) -> None:
    with pytest.raises(ImproperlyConfigured) as caught:
        Environment({"URL": "mysql://me:secret@db/x"}).database("URL", tmp_path)

    assert "mysql" in str(caught.value)
    assert "secret" not in str(caught.value)


def test_the_secret_key_is_created_once_and_readable_only_for_its_owner(tmp_path) -> None:
    path = tmp_path / "deep" / "key"

    first = secret_key.load_or_make(path)
    second = secret_key.load_or_make(path)

    assert first == second
    assert len(first.current) >= secret_key.KEY_CHARACTERS_MIN
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert list(path.parent.iterdir()) == [path]


def test_a_secret_key_that_is_too_short_is_rejected(tmp_path) -> None:
    path = tmp_path / "key"
    path.write_text("short")

    with pytest.raises(ImproperlyConfigured, match="fewer than"):
        secret_key.load_or_make(path)


def test_a_password_outside_the_url_uses_postgresqls_own_variable(tmp_path: Path) -> None:
    (tmp_path / "password").write_text("word\n")
    given = {
        "DATABASE_URL": "postgres://user@host/name",
        "PGPASSWORD_FILE": str(tmp_path / "password"),
    }

    assert Environment(given).database("DATABASE_URL", tmp_path)["PASSWORD"] == "word"
    given["DATABASE_URL"] = "postgres://user:its-own@host/name"
    assert Environment(given).database("DATABASE_URL", tmp_path)["PASSWORD"] == "its-own"
