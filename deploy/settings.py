"""The settings of deploy/up: an option and an environment variable for each, the option wins.

Standard library only. What may hold a secret has no option: every user of the machine may read a
command's arguments.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from broker_core.config.nearest import nearest

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

PREFIX = "TREBUCHET_"
FILE = "_FILE"
"""Ends the name of a variable that names a file with the value."""
TESTS = "TREBUCHET_TEST_"


@dataclass(frozen=True, slots=True)
class Setting:
    """A setting that holds no secret.

    Attributes:
        value: what stands for the value in the help; empty for a switch, in brackets for a value
            that may be left out.
        help: its part of the help, a key of deploy/chinese.py.
    """

    option: str
    variable: str
    value: str
    help: str

    @property
    def arguments(self) -> dict[str, Any]:
        """What argparse is told of the option, but for its help."""
        if not self.value:
            return {"action": "store_const", "const": "true"}
        if self.value.startswith("["):
            return {"nargs": "?", "const": "true", "metavar": self.value.strip("[]")}
        return {"metavar": self.value}


SETTINGS = (
    Setting(
        "--data",
        "TREBUCHET_DATA",
        "DIR",
        "directory for everything written (default: data in the checkout)",
    ),
    Setting(
        "--web",
        "TREBUCHET_WEB",
        "HOST:PORT",
        "address of the console's pages (default: 127.0.0.1:8000)",
    ),
    Setting(
        "--user",
        "TREBUCHET_USER",
        "NAME",
        "started by root, the user that everything runs as (default: trebuchet, a system user that "
        "is made when missing); root stays root",
    ),
    Setting(
        "--admin", "TREBUCHET_ADMIN", "NAME", "name of the first administrator (default: admin)"
    ),
    Setting(
        "--allowed-hosts",
        "TREBUCHET_ALLOWED_HOSTS",
        "NAMES",
        "host names, separated by commas, under which the pages may be visited",
    ),
    Setting(
        "--behind-proxy",
        "TREBUCHET_BEHIND_PROXY",
        "",
        "a reverse proxy on this machine terminates TLS; needs --https and --trusted-origins",
    ),
    Setting("--https", "TREBUCHET_HTTPS", "", "the pages are visited by https"),
    Setting(
        "--trusted-origins",
        "TREBUCHET_TRUSTED_ORIGINS",
        "URLS",
        "where forms may come from behind a proxy, such as https://name, separated by commas",
    ),
    Setting(
        "--further-brokers",
        "TREBUCHET_BROKERS",
        "ADDRESSES",
        "further brokers that the console asks with its account, host:port separated by "
        "semicolons; others must be confirmed on the overview",
    ),
    Setting(
        "--slave",
        "TREBUCHET_SLAVE",
        "",
        "start a slave beside each master, ten ports above it, with a store of its own in the "
        "data directory (docs/replication.md)",
    ),
    Setting(
        "--lake",
        "TREBUCHET_LAKE",
        "[PLACE]",
        "keep the broker's messages as Delta tables in a directory or s3://bucket/prefix, without "
        "a place in the data directory (docs/lake.md)",
    ),
    Setting(
        "--language",
        "TREBUCHET_LANGUAGE",
        "NAME",
        "en or zh-hans: what this command says, and the console to whoever chose none (default: "
        "zh-hans where LANG is zh_CN, else en)",
    ),
    Setting(
        "--log-level", "TREBUCHET_LOG_LEVEL", "LEVEL", "the console's log level (default: INFO)"
    ),
    Setting(
        "--log-format",
        "TREBUCHET_LOG_FORMAT",
        "FORMAT",
        "lines or json: what every process of ours writes to its log (default: lines)",
    ),
    Setting(
        "--otlp-endpoint",
        "TREBUCHET_OTLP_ENDPOINT",
        "URL",
        "the collector that the console hands traces to, http://host:4318 (docs/family.md)",
    ),
    Setting(
        "--java-home",
        "JAVA_HOME",
        "DIR",
        "the Java 17 or newer that runs the reports (default: java on PATH)",
    ),
)
OTHERS = frozenset(
    {
        f"{PREFIX}{name}"
        for name in (
            *("ACCOUNT_PASSWORD", "ADMIN_PASSWORD", "ALERT_TARGETS", "ALERT_TARGETS_ONLY"),
            *("ANALYTICS_COMMAND", "API_REQUESTS_A_MINUTE", "BODY_BYTES_MAX_BELOW"),
            *("BROKER_ACCESS_KEY", "BROKER_SECRET_KEY", "COMMIT_LOG", "CONFIRMED_BROKERS"),
            *("CONSOLE", "DEBUG", "DEVICE_COOKIE_PREFIX", "GATEWAY", "HANDED_FD", "HISTORY"),
            *("LAKE_BODIES", "LAKE_BROKER", "LAKE_DAYS", "LAKE_PROGRAM", "MAIL_FROM", "METRICS"),
            *("METRICS_SERIES_MAX", "METRICS_TOKEN", "NAMESRV", "NATIVE", "OIDC_CLAIM"),
            *("OIDC_CLIENT_ID", "OIDC_CLIENT_SECRET", "OIDC_DEFAULT_ROLE", "OIDC_ISSUER"),
            *("OIDC_NAME", "OIDC_NAME_CLAIM", "OIDC_ROLES", "OIDC_SCOPE", "OTLP_HEADERS"),
            *("OTLP_SAMPLE", "OTLP_TOPIC", "REDIS_URL", "REPLAY", "SECOND_STEP", "SECRET_KEY"),
            *("SECRET_KEY_FALLBACKS", "SMTP", "SMTP_PASSWORD", "SMTP_TLS", "SMTP_USER", "SPARK"),
            *("SPARK_BROKERS", "SPARK_CLASSES", "SPARK_DRIVER_HOST", "SPARK_GUEST"),
            *("SPARK_MASTER", "SPARK_SECRET", "STARTED_AT", "STORE", "TOKEN", "URL"),
        )
    }
)
"""What the console, reports and programs of ours read besides."""


def unknown(environment: Iterable[str]) -> Iterator[tuple[str, str | None]]:
    """Yield the variables with our prefix that nothing reads, each with what was probably meant."""
    known = {one.variable for one in SETTINGS} | OTHERS
    for name in sorted(environment):
        is_ours = name.startswith(PREFIX) and not name.startswith(TESTS)
        if is_ours and name not in known and name.removesuffix(FILE) not in known:
            yield name, nearest(name, known)
