"""The settings of deploy/up: each has an option and an environment variable, and the option wins.

Standard library only. Settings that may hold a secret have no option: every user of the machine can
read a command's arguments.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from broker_core.config.spelling import nearest

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

PREFIX = "TREBUCHET_"
FILE = "_FILE"
"""Suffix of a variable that names a file with the value."""
TESTS = "TREBUCHET_TEST_"
SPARK_MASTER = "TREBUCHET_SPARK_MASTER"
CONNECT_PREFIX = "sc://"
"""Begins the address of a Spark Connect server."""


@dataclass(frozen=True, slots=True)
class Setting:
    """A setting that isn't a secret.

    Attributes:
        value: the value's placeholder in the help; empty for a switch, in brackets for an optional
            value.
        help: the text in the help, a key of deploy/terminal/chinese.py.
        words: the allowed values, in any case; empty if any value is allowed.
    """

    option: str
    variable: str
    value: str
    help: str
    words: tuple[str, ...] = ()

    @property
    def arguments(self) -> dict[str, Any]:
        """The option's keyword arguments for argparse, without the help."""
        if not self.value:
            return {"action": "store_const", "const": "true"}
        if self.value.startswith("["):
            return {"nargs": "?", "const": "true", "metavar": self.value.strip("[]")}
        return {"metavar": self.value}


FLAG = ("1", "true", "yes", "on", "0", "false", "no", "off")
TRUE = FLAG[:4]
SETTINGS = (
    Setting(
        "--data",
        "TREBUCHET_DATA",
        "DIR",
        "directory for all data (default: data in the checkout)",
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
        "user to run as when root starts the appliance, or root to stay root (default: "
        "trebuchet, a system user that is created if missing)",
    ),
    Setting(
        "--admin",
        "TREBUCHET_ADMIN",
        "NAME",
        "name of the first administrator (default: admin)",
    ),
    Setting(
        "--allowed-hosts",
        "TREBUCHET_ALLOWED_HOSTS",
        "NAMES",
        "more host names that the console accepts, separated by commas (default: none)",
    ),
    Setting(
        "--behind-proxy",
        "TREBUCHET_BEHIND_PROXY",
        "",
        "a reverse proxy on this machine terminates TLS; needs --https and --trusted-origins "
        "(default: no proxy)",
        FLAG,
    ),
    Setting(
        "--https",
        "TREBUCHET_HTTPS",
        "",
        "browsers use https to reach the console (default: http)",
        FLAG,
    ),
    Setting(
        "--trusted-origins",
        "TREBUCHET_TRUSTED_ORIGINS",
        "URLS",
        "origins that may submit forms through the proxy, such as https://name, separated by "
        "commas (default: none)",
    ),
    Setting(
        "--further-brokers",
        "TREBUCHET_BROKERS",
        "ADDRESSES",
        "other brokers that the console may reach with its account, host:port separated by "
        "semicolons; confirm any other broker on the overview (default: none)",
    ),
    Setting(
        "--slave",
        "TREBUCHET_SLAVE",
        "",
        "start a slave for each master, ten ports above it, with its own store in the data "
        "directory (docs/replication.md)",
        FLAG,
    ),
    Setting(
        "--lake",
        "TREBUCHET_LAKE",
        "[PLACE]",
        "where messages are kept as Delta tables: a directory or s3://bucket/prefix, or false to "
        "keep none (default: lake in the data directory; docs/lake.md)",
    ),
    Setting(
        "--pipeline-engine",
        "TREBUCHET_PIPELINE_ENGINE",
        "ENGINE",
        "engine that writes these tables: spark or arrow (default: spark if the machine has "
        "Java 17 and 4 GB of memory, else arrow)",
        ("spark", "arrow"),
    ),
    Setting(
        "--spark-idle",
        "TREBUCHET_SPARK_IDLE",
        "SECONDS",
        "how long an idle Spark session is kept (default: 900)",
    ),
    Setting(
        "--language",
        "TREBUCHET_LANGUAGE",
        "NAME",
        "language of this command, and of the console until a person chooses one: en or zh-hans "
        "(default: zh-hans if LANG is zh_CN, else en)",
        ("en", "zh-hans"),
    ),
    Setting(
        "--log-level",
        "TREBUCHET_LOG_LEVEL",
        "LEVEL",
        "lowest level that the console logs (default: INFO)",
        ("DEBUG", "INFO", "WARN", "WARNING", "ERROR", "CRITICAL"),
    ),
    Setting(
        "--log-format",
        "TREBUCHET_LOG_FORMAT",
        "FORMAT",
        "format of every process's log: lines or json (default: lines)",
        ("lines", "json"),
    ),
    Setting(
        "--otlp-endpoint",
        "TREBUCHET_OTLP_ENDPOINT",
        "URL",
        "OpenTelemetry collector that the console sends traces to, such as http://host:4318 "
        "(default: none; docs/family.md)",
    ),
    Setting(
        "--java-home",
        "JAVA_HOME",
        "DIR",
        "Java 17 or newer to run reports with (default: java on PATH)",
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
            *("LAKE_BODIES", "LAKE_BROKER", "LAKE_DAYS", "LAKE_FORMATS", "LAKE_PROGRAM"),
            "LAKE_SOURCES",
            *("MAIL_FROM", "METRICS"),
            *("METRICS_SERIES_MAX", "METRICS_TOKEN", "NAMESRV", "NATIVE", "OIDC_CLAIM"),
            *("OIDC_CLIENT_ID", "OIDC_CLIENT_SECRET", "OIDC_DEFAULT_ROLE", "OIDC_ISSUER"),
            *("OIDC_NAME", "OIDC_NAME_CLAIM", "OIDC_ROLES", "OIDC_SCOPE", "OTLP_HEADERS"),
            *("OTLP_SAMPLE", "OTLP_TOPIC", "REDIS_URL", "REPLAY", "SECOND_STEP", "SECRET_KEY"),
            *("SECRET_KEY_FALLBACKS", "SMTP", "SMTP_PASSWORD", "SMTP_TLS", "SMTP_USER", "SPARK"),
            *(
                "SPARK_BROKERS",
                "SPARK_CLASSES",
                "SPARK_CONF_FILE",
                "SPARK_DRIVER_HOST",
                "SPARK_GUEST",
            ),
            *("SPARK_MASTER", "SPARK_SECRET", "STARTED_AT", "STORE", "TOKEN", "URL"),
        )
    }
)
"""Variables without an option that the console, reports and other programs read."""


def unknown(environment: Iterable[str]) -> Iterator[tuple[str, str | None]]:
    """Yield each variable with our prefix that isn't a setting, with the closest known name."""
    known = {one.variable for one in SETTINGS} | OTHERS
    for name in sorted(environment):
        is_ours = name.startswith(PREFIX) and not name.startswith(TESTS)
        if is_ours and name not in known and name.removesuffix(FILE) not in known:
            yield name, nearest(name, known)


def is_connect_server(environment: Mapping[str, str]) -> bool:
    """Return whether Spark runs in a Spark Connect server, which has its own Java."""
    return environment.get(SPARK_MASTER, "").startswith(CONNECT_PREFIX)
