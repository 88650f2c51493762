from __future__ import annotations

import pytest

from broker_core.environment import without_secrets


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("TREBUCHET_SECRET_KEY", "x"),
        ("PGPASSWORD", "x"),
        ("GITHUB_TOKEN", "x"),
        ("AWS_ACCESS_KEY_ID", "x"),
        ("some_api_key", "x"),
        ("DATABASE_URL", "postgres://somebody:word@host/name"),
        ("TREBUCHET_REDIS_URL", "redis://:word@127.0.0.1:6379/0"),
        ("https_proxy", "http://somebody:word@proxy:3128"),
    ],
)
def test_a_secret_is_not_passed_on(name: str, value: str) -> None:
    assert without_secrets({name: value, "PATH": "/bin"}) == {"PATH": "/bin"}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("TREBUCHET_SECRET_KEY_FILE", "/run/secrets/key"),
        ("TREBUCHET_SPARK_SECRET_FILE", "/run/secrets/spark"),
        ("DATABASE_URL", "postgres://somebody@host/name"),
        ("TREBUCHET_REDIS_URL", "unix:///run/redis.sock"),
        ("https_proxy", "http://proxy:3128/?user@here"),
        ("JAVA_HOME", "/usr/lib/jvm/java-17"),
    ],
)
def test_non_secret_variables_are_passed_on(name: str, value: str) -> None:
    assert without_secrets({name: value}) == {name: value}
