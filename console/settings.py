"""The console's settings, all from environment variables."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

from django.core.exceptions import ImproperlyConfigured

from console import catalogues, secret_key
from console.env import FALSE_WORDS, TRUE_WORDS, Environment
from console.observe.scraping import access as scraping

env = Environment()

BASE_DIR = Path(__file__).resolve().parent.parent

TREBUCHET_DATA = env.directory("TREBUCHET_DATA", BASE_DIR / "data")
TREBUCHET_STORE = env.directory("TREBUCHET_STORE", TREBUCHET_DATA / "store")
# Where the broker's configuration puts the log (storePathCommitLog); empty means in the store.
TREBUCHET_COMMIT_LOG = env.text("TREBUCHET_COMMIT_LOG", "")
# The pipeline's Spark session ends after this many seconds without a job.
TREBUCHET_SPARK_IDLE = env.count("TREBUCHET_SPARK_IDLE", 900)
# Name servers as the cluster's workers reach them, if the cluster can't read the log directly.
TREBUCHET_SPARK_BROKERS = env.text("TREBUCHET_SPARK_BROKERS", "")
# The lake that the pipeline maintains: a directory or s3://bucket/prefix; empty means no lake.
TREBUCHET_LAKE = env.text("TREBUCHET_LAKE", "true")
if TREBUCHET_LAKE.lower() in FALSE_WORDS:
    TREBUCHET_LAKE = ""
elif TREBUCHET_LAKE.lower() in TRUE_WORDS:
    TREBUCHET_LAKE = str(TREBUCHET_DATA / "lake")
# The brokers whose logs are ingested: deploy/up lists each master.
TREBUCHET_LAKE_SOURCES = env.records(
    "TREBUCHET_LAKE_SOURCES", ("broker", "store", "commit_log")
) or [
    {
        "broker": env.text("TREBUCHET_LAKE_BROKER", "broker-a"),
        "store": str(TREBUCHET_STORE),
        "commit_log": TREBUCHET_COMMIT_LOG,
    }
]
TREBUCHET_WEB = env.host_port("TREBUCHET_WEB", "127.0.0.1:8000")
TREBUCHET_NAMESRV = [str(each) for each in env.host_ports("TREBUCHET_NAMESRV", "127.0.0.1:9876")]
# Registered broker addresses, separated by semicolons, that need no confirmation.
TREBUCHET_BROKERS = [
    part.strip() for part in env.text("TREBUCHET_BROKERS", "").split(";") if part.strip()
]
TREBUCHET_CONFIRMED_BROKERS_FILE = TREBUCHET_DATA / "confirmed_brokers.json"
TREBUCHET_HISTORY_FILE = TREBUCHET_DATA / "history.sqlite3"
TREBUCHET_REDIS_URL = env.secret("TREBUCHET_REDIS_URL") or "redis://127.0.0.1:6379/0"
TREBUCHET_DATA.mkdir(parents=True, exist_ok=True)

# The console's account at brokers with access control, which must be an administrator.
TREBUCHET_BROKER_ACCESS_KEY = env.secret("TREBUCHET_BROKER_ACCESS_KEY") or ""
TREBUCHET_BROKER_SECRET_KEY = env.secret("TREBUCHET_BROKER_SECRET_KEY")
if bool(TREBUCHET_BROKER_ACCESS_KEY) != bool(TREBUCHET_BROKER_SECRET_KEY):
    raise ImproperlyConfigured(
        "TREBUCHET_BROKER_ACCESS_KEY and TREBUCHET_BROKER_SECRET_KEY (or its _FILE) must be set "
        "together."
    )

# The interface between pages and brokers; tests set another factory.
TREBUCHET_GATEWAY = "console.gateway.remote.gateway.remote_gateway"
GATEWAY_TIMEOUT_S = 3.0

DEBUG = env.flag("TREBUCHET_DEBUG", default=False)
TREBUCHET_SECRET_KEY_FILE = TREBUCHET_DATA / "console.secret_key"
SECRET_KEY, SECRET_KEY_FALLBACKS = (
    secret_key.Keys(key, (env.secret("TREBUCHET_SECRET_KEY_FALLBACKS") or "").split())
    if (key := env.secret("TREBUCHET_SECRET_KEY"))
    else secret_key.load_or_make(TREBUCHET_SECRET_KEY_FILE)
)

LOOPBACK_HOSTS = ["127.0.0.1", "localhost", "[::1]"]
IS_ON_LOOPBACK = TREBUCHET_WEB.host in {"127.0.0.1", "localhost", "::1"}
ALLOWED_HOSTS = sorted(
    {
        *LOOPBACK_HOSTS,
        *env.names("TREBUCHET_ALLOWED_HOSTS"),
        # A wildcard listener doesn't reveal the host name that people use.
        *({TREBUCHET_WEB.host} - {"0.0.0.0", "::"}),
    }
)

INSTALLED_APPS = [
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
    "channels",
    "csp",
    "django_htmx",
    "django_celery_beat",
    "django_otp",
    "django_otp.plugins.otp_totp",
    "console.ui",
    "console.accounts",
    "console.people.accounts",
    "console.people.masking",
    "console.people.preferences",
    "console.palette",
    "console.people.audit",
    "console.broker.configs",
    "console.observe.overview",
    "console.observe.flow",
    "console.observe.collector",
    "console.observe.history",
    "console.observe.verdicts",
    "console.observe.alerts",
    "console.observe.marks",
    "console.broker.brokers",
    "console.broker.broker_accounts",
    "console.broker.topics",
    "console.broker.groups",
    "console.broker.clients",
    "console.broker.offsets",
    "console.broker.files",
    "console.messages.browse",
    "console.messages.family",
    "console.messages.dead_letters",
    "console.messages.sending",
    "console.messages.tracing",
    "console.data.lake",
    "console.data.sql",
    "console.data.reports",
    "console.demo",
    "console.connect",
    "console.api",
]

MIDDLEWARE = [
    "console.people.audit.requests.RequestIds",
    "django.middleware.security.SecurityMiddleware",
    "console.ui.static_files.StaticFiles",
    "csp.middleware.CSPMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.locale.LocaleMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.auth.middleware.LoginRequiredMiddleware",
    "console.accounts.signed_in.RecordSessions",
    "console.people.accounts.second_step_gate.RequireSecondStep",
    "console.accounts.middleware.RequestRights",
    "console.people.preferences.middleware.PersonalPages",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
    "django_htmx.middleware.HtmxMiddleware",
    "console.gateway.middleware.GatewayProblems",
    "console.api.frame.ApiFrame",
]

ROOT_URLCONF = "console.urls"
ASGI_APPLICATION = "console.asgi.application"
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
# The maximum size of a request body, checked before Django reads it; it fits a plan of offsets for
# thousands of queues. Django keeps bodies up to this size in memory, so no request is written to
# disk.
DATA_UPLOAD_MAX_MEMORY_SIZE = FILE_UPLOAD_MAX_MEMORY_SIZE = 2_621_440
TREBUCHET_BODY_BYTES_MAX_BELOW = {"/accounts/": 16 * 1024}
DATA_UPLOAD_MAX_NUMBER_FIELDS = 1_000

TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "DIRS": [BASE_DIR / "console" / "templates"],
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
                "console.frame.frame",
            ],
            "builtins": [
                "django.templatetags.i18n",
                "django.templatetags.static",
                "console.ui.templatetags.ui",
            ],
        },
    },
]

DATABASES = {"default": env.database("DATABASE_URL", TREBUCHET_DATA / "console.sqlite3")}
CACHES: dict[str, dict[str, Any]] = {
    "default": {"BACKEND": "django.core.cache.backends.locmem.LocMemCache"},
    # Request counters: one process serves all requests, and other caches must not evict them.
    "limits": {
        "BACKEND": "django.core.cache.backends.locmem.LocMemCache",
        "LOCATION": "limits",
        "OPTIONS": {"MAX_ENTRIES": 10_000},
    },
}
TREBUCHET_API_REQUESTS_A_MINUTE = env.count("TREBUCHET_API_REQUESTS_A_MINUTE", 600)

LOGIN_URL = "accounts:sign-in"
LOGIN_REDIRECT_URL = "overview:index"
LOGOUT_REDIRECT_URL = "accounts:sign-in"
PASSWORD_HASHERS = ["console.accounts.hashing.Argon2InTurn"]
AUTH_PASSWORD_VALIDATORS = [
    {
        "NAME": "console.accounts.password_policy.LengthValidator",
        "OPTIONS": {"min_length": 12},
    },
    {"NAME": "console.accounts.password_policy.RepetitionValidator"},
    {"NAME": "console.accounts.password_policy.NameValidator"},
    {"NAME": "console.accounts.password_policy.CommonWordValidator"},
]

# Who must also sign in with a code from an app: nobody, administrators or everyone.
TREBUCHET_SECOND_STEP = env.choice(
    "TREBUCHET_SECOND_STEP", ("optional", "administrators", "everyone"), default="optional"
)
OTP_TOTP_ISSUER = "Trebuchet"
# console/accounts/throttle.py counts attempts before a code is checked.
OTP_TOTP_THROTTLE_FACTOR = 0

TREBUCHET_HTTPS = env.flag("TREBUCHET_HTTPS", default=False)
# Cookies ignore ports, so two appliances on one host would sign each other's users out.
COOKIE_PREFIX = "__Host-" if TREBUCHET_HTTPS else ""
SESSION_COOKIE_NAME = f"{COOKIE_PREFIX}trebuchet_session_{TREBUCHET_WEB.port}"
CSRF_COOKIE_NAME = f"{COOKIE_PREFIX}trebuchet_csrf_{TREBUCHET_WEB.port}"
TREBUCHET_DEVICE_COOKIE_PREFIX = f"{COOKIE_PREFIX}trebuchet_device_{TREBUCHET_WEB.port}"
SESSION_COOKIE_AGE = int(timedelta(hours=12).total_seconds())
SESSION_COOKIE_SECURE = CSRF_COOKIE_SECURE = TREBUCHET_HTTPS
SESSION_COOKIE_HTTPONLY = CSRF_COOKIE_HTTPONLY = True
SESSION_COOKIE_SAMESITE = CSRF_COOKIE_SAMESITE = "Lax"
CSRF_TRUSTED_ORIGINS = env.names("TREBUCHET_TRUSTED_ORIGINS")
CSRF_FAILURE_VIEW = "console.error_pages.csrf_failure"
SECURE_SSL_REDIRECT = TREBUCHET_HTTPS
SECURE_HSTS_SECONDS = int(timedelta(days=365).total_seconds()) if TREBUCHET_HTTPS else 0
SECURE_HSTS_INCLUDE_SUBDOMAINS = SECURE_HSTS_PRELOAD = TREBUCHET_HTTPS
if IS_ON_LOOPBACK and not TREBUCHET_HTTPS:
    # The missing settings (HSTS, redirects, secure cookies) require TLS, and a loopback address
    # doesn't need it. On any other address the check fails without TREBUCHET_HTTPS.
    SILENCED_SYSTEM_CHECKS = [f"security.W0{number}" for number in ("04", "08", "12", "16")]
IS_BEHIND_PROXY = env.flag("TREBUCHET_BEHIND_PROXY", default=False)
# Trust the header only behind a proxy that sets it; otherwise any client could claim TLS.
if IS_BEHIND_PROXY:
    SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https")
SECURE_REFERRER_POLICY = "same-origin"
SECURE_CROSS_ORIGIN_OPENER_POLICY = "same-origin"
X_FRAME_OPTIONS = "DENY"
CONTENT_SECURITY_POLICY = {
    "DIRECTIVES": {
        "default-src": ["'self'"],
        "script-src": ["'self'"],
        "style-src": ["'self'"],
        "img-src": ["'self'", "data:"],
        "connect-src": ["'self'"],
        "object-src": ["'none'"],
        "base-uri": ["'none'"],
        "form-action": ["'self'"],
        "frame-ancestors": ["'none'"],
    },
}

STATIC_URL = "/static/"
STATIC_ROOT = TREBUCHET_DATA / "static"
STATIC_ROOT.mkdir(parents=True, exist_ok=True)
STATICFILES_DIRS = [BASE_DIR / "console" / "static"]
STORAGES = {
    "default": {"BACKEND": "django.core.files.storage.FileSystemStorage"},
    "staticfiles": {"BACKEND": "console.ui.static_files.HashedStaticFiles"},
}
# Until `collectstatic` has run, pages use plain file names from the source tree.
WHITENOISE_USE_FINDERS = True
WHITENOISE_KEEP_ONLY_HASHED_FILES = False
# Only pages of this console load these files.
WHITENOISE_ALLOW_ALL_ORIGINS = False

# Alert targets beyond the public internet: host names and networks. ONLY restricts alerts to these.
TREBUCHET_ALERT_TARGETS = env.names("TREBUCHET_ALERT_TARGETS")
TREBUCHET_ALERT_TARGETS_ONLY = env.flag("TREBUCHET_ALERT_TARGETS_ONLY", default=False)
# The public URL of this console, for links in messages.
TREBUCHET_URL = env.text(
    "TREBUCHET_URL", f"{'https' if TREBUCHET_HTTPS else 'http'}://{TREBUCHET_WEB}"
).rstrip("/")

# OpenID Connect sign-in, off unless an issuer is set: console/accounts/oidc.py.
ROLE_NAMES = ("limited", "viewer", "operator", "administrator")
TREBUCHET_OIDC_ISSUER = env.issuer("TREBUCHET_OIDC_ISSUER", client="TREBUCHET_OIDC_CLIENT_ID")
TREBUCHET_OIDC_CLIENT_ID = env.text("TREBUCHET_OIDC_CLIENT_ID", "")
TREBUCHET_OIDC_CLIENT_SECRET = env.secret("TREBUCHET_OIDC_CLIENT_SECRET") or ""
TREBUCHET_OIDC_NAME = env.text("TREBUCHET_OIDC_NAME", "OpenID Connect")
TREBUCHET_OIDC_SCOPE = env.text("TREBUCHET_OIDC_SCOPE", "openid profile")
# The claims in the ID token with the person's name and groups.
TREBUCHET_OIDC_NAME_CLAIM = env.text("TREBUCHET_OIDC_NAME_CLAIM", "preferred_username")
TREBUCHET_OIDC_CLAIM = env.text("TREBUCHET_OIDC_CLAIM", "groups")
TREBUCHET_OIDC_ROLES = env.mapping("TREBUCHET_OIDC_ROLES", ROLE_NAMES, "role:")
# The role of people without a matching group; by default they can't sign in.
TREBUCHET_OIDC_DEFAULT_ROLE = env.choice(
    "TREBUCHET_OIDC_DEFAULT_ROLE", ("none", "limited", "viewer"), default="none"
)

# Trace export to a collector, off unless an endpoint is set: console/messages/tracing/export.py.
TREBUCHET_OTLP_ENDPOINT = env.http_url("TREBUCHET_OTLP_ENDPOINT", "/v1/traces")
TREBUCHET_OTLP_HEADERS = env.pairs("TREBUCHET_OTLP_HEADERS")
TREBUCHET_OTLP_TOPIC = env.text("TREBUCHET_OTLP_TOPIC", "")
TREBUCHET_OTLP_SAMPLE = env.count("TREBUCHET_OTLP_SAMPLE", 100)

TREBUCHET_SMTP = env.text("TREBUCHET_SMTP", "")
EMAIL_HOST, EMAIL_PORT = env.host_port("TREBUCHET_SMTP", ":25") if TREBUCHET_SMTP else ("", 25)
EMAIL_HOST_USER = env.text("TREBUCHET_SMTP_USER", "")
EMAIL_HOST_PASSWORD = env.secret("TREBUCHET_SMTP_PASSWORD") or ""
SMTP_TLS = env.choice("TREBUCHET_SMTP_TLS", ("starttls", "tls", "none"), default="starttls")
EMAIL_USE_TLS, EMAIL_USE_SSL = SMTP_TLS == "starttls", SMTP_TLS == "tls"
EMAIL_TIMEOUT = 10
DEFAULT_FROM_EMAIL = env.text("TREBUCHET_MAIL_FROM", "trebuchet@localhost")

# Access to the console's own metrics: nobody, this machine, or clients with the token.
TREBUCHET_METRICS = env.choice("TREBUCHET_METRICS", scraping.MODES, default=scraping.OFF)
TREBUCHET_METRICS_TOKEN = env.secret("TREBUCHET_METRICS_TOKEN") or ""
scraping.check(TREBUCHET_METRICS, TREBUCHET_METRICS_TOKEN, is_behind_proxy=IS_BEHIND_PROXY)
TREBUCHET_METRICS_SERIES_MAX = env.count("TREBUCHET_METRICS_SERIES_MAX", 10_000)

LANGUAGES = [("en", "English"), ("zh-hans", "简体中文")]
# The default language: for alerts of channels without a language, and for browsers that prefer an
# unsupported one.
LANGUAGE_CODE = env.choice("TREBUCHET_LANGUAGE", [code for code, _name in LANGUAGES], default="en")
WORDS_DIR = BASE_DIR / "console" / "locale"
LOCALE_PATHS = [WORDS_DIR, catalogues.compiled(WORDS_DIR, TREBUCHET_DATA / "words")]
USE_I18N = True
USE_TZ = True
TIME_ZONE = "UTC"

# One ASGI process serves all sockets; message data never passes through a layer.
CHANNEL_LAYERS = {"default": {"BACKEND": "channels.layers.InMemoryChannelLayer"}}

CELERY_BROKER_URL = TREBUCHET_REDIS_URL
CELERY_BROKER_CONNECTION_RETRY_ON_STARTUP = True
CELERY_BROKER_TRANSPORT_OPTIONS = {"socket_connect_timeout": 2, "socket_timeout": 10}
CELERY_ACCEPT_CONTENT = ["json"]
CELERY_TASK_SERIALIZER = "json"
CELERY_RESULT_SERIALIZER = "json"
CELERY_TASK_IGNORE_RESULT = True
CELERY_TASK_ACKS_LATE = True
CELERY_TASK_REJECT_ON_WORKER_LOST = True
CELERY_WORKER_PREFETCH_MULTIPLIER = 1
CELERY_TIMEZONE = "UTC"
CELERY_ENABLE_UTC = True
CELERY_BEAT_SCHEDULER = "console.data.reports.beat:Scheduler"

LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {
        "line": {
            "()": "broker_core.log_lines.formatter",
            "form": "%(asctime)s %(levelname)s %(name)s %(message)s",
        }
    },
    "handlers": {"console": {"class": "logging.StreamHandler", "formatter": "line"}},
    "root": {"handlers": ["console"], "level": env.text("TREBUCHET_LOG_LEVEL", "INFO").upper()},
    "loggers": {
        # Listing these removes Django's own handlers, which don't escape lines.
        "django": {"level": "INFO"},
        "django.server": {"level": "INFO", "propagate": True},
        "django.request": {"level": "ERROR"},
        "django.utils.autoreload": {"level": "WARNING"},
    },
}
