from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING

from console.env import Environment
from deploy.settings import secret_files

if TYPE_CHECKING:
    from pathlib import Path


def test_secrets_are_removed_from_the_environment_and_the_rest_stays(tmp_path: Path) -> None:
    (tmp_path / "key").write_text("of a file\nand no more\n")
    environment = {
        "TREBUCHET_SECRET_KEY": "a key",
        "TREBUCHET_BROKER_SECRET_KEY_FILE": str(tmp_path / "key"),
        "DATABASE_URL_FILE": str(tmp_path / "absent"),
        "DATABASE_URL": "",
        "SOMEBODYS_TOKEN": "not the console's",
        "PATH": "/bin",
    }

    secrets = secret_files.take(environment)

    assert secrets == {"TREBUCHET_SECRET_KEY": "a key", "TREBUCHET_BROKER_SECRET_KEY": "of a file"}
    # The console names the missing file.
    assert environment == {"DATABASE_URL_FILE": str(tmp_path / "absent"), "PATH": "/bin"}


def test_a_value_takes_precedence_over_a_file(tmp_path: Path) -> None:
    (tmp_path / "key").write_text("of a file\n")
    environment = {
        "TREBUCHET_SECRET_KEY": "a key",
        "TREBUCHET_SECRET_KEY_FILE": str(tmp_path / "key"),
    }

    assert secret_files.take(environment) == {"TREBUCHET_SECRET_KEY": "a key"}
    assert environment == {}


def test_secrets_are_passed_to_the_next_program_once() -> None:
    environment: dict[str, str] = {}
    secret_files.pass_on({"TREBUCHET_SECRET_KEY": "a key"}, environment)
    (descriptor,) = environment.values()
    assert os.get_inheritable(int(descriptor))

    assert secret_files.take(environment) == {"TREBUCHET_SECRET_KEY": "a key"}

    assert environment == {}
    assert secret_files.take(environment) == {}


def test_the_console_finds_secrets_in_files_that_only_its_user_can_read(tmp_path: Path) -> None:
    directory = tmp_path / "secrets"
    directory.mkdir()
    (directory / "of-an-earlier-start").touch()
    secrets = {
        "TREBUCHET_SECRET_KEY_FALLBACKS": "one\ntwo",
        "DATABASE_URL": "postgres://a:b@c/d",
        "TREBUCHET_ADMIN_PASSWORD": "not for who stays up",
    }

    named = secret_files.write(directory, secrets)

    env = Environment(named)
    assert env.secret("TREBUCHET_SECRET_KEY_FALLBACKS") == "one two"
    assert env.secret("DATABASE_URL") == "postgres://a:b@c/d"
    assert {file.name for file in directory.iterdir()} == {
        "database_url",
        "trebuchet_secret_key_fallbacks",
    }
    assert stat.S_IMODE(directory.stat().st_mode) == 0o700
    assert {stat.S_IMODE(file.stat().st_mode) for file in directory.iterdir()} == {0o600}
    secret_files.remove(directory)
    assert not directory.exists()
