"""The layers: the packages that each package may import, and those that it never imports."""

from __future__ import annotations

PRODUCT = {"broker_core", "console", "analytics", "deploy"}
BASE = {
    "broker_core.errors",
    "broker_core.clock",
    "broker_core.isolation",
    "broker_core.message",
}
SERVICE = BASE | {
    "broker_core.backlog",
    "broker_core.config",
    "broker_core.counted_log",
    "broker_core.service",
    "broker_core.steps",
    "broker_core.storage",
    "broker_core.formats",
    "broker_core.store",
}
SERVICES = (
    "sending",
    "metadata",
    "clients",
    "delivery",
    "delay",
    "timers",
    "transaction",
    "stats",
    "trace",
    "pop",
)

# From the bottom to the top: a package of deploy, and the packages that it may import.
DEPLOY: dict[str, set[str]] = {
    "terminal": set(),
    "install": {"terminal"},
    "settings": {"terminal", "install"},
    "machine": {"terminal", "install", "settings"},
    "brokers": {"terminal", "install", "settings", "machine"},
    "processes": {"terminal", "install", "settings", "brokers"},
    "archive": {"terminal", "install", "settings", "brokers"},
    "checks": {"terminal", "install"},
    "commands": {
        *("terminal", "install", "settings", "machine", "brokers", "processes", "archive"),
        "checks",
    },
}
DEPLOY_OUTSIDE = {
    "analytics",
    "broker_core.config",
    "broker_core.environment",
    "broker_core.errors",
    "broker_core.formats",
    "broker_core.isolation",
    "broker_core.log_lines",
    "broker_core.protocol",
    "broker_core.storage",
    "broker_core.store",
    "console",
}
CONSOLE = {
    # Expressions over message properties: a language, independent of a broker.
    "broker_core.delivery.sql92",
    "broker_core.environment",
    "broker_core.errors",
    # The demo's clients over gRPC.
    "broker_core.grpc_messages",
    "broker_core.http2.client",
    "broker_core.http2.codes",
    "broker_core.isolation",
    "broker_core.log_lines",
    "broker_core.message",
    # Answers to Prometheus.
    "broker_core.metrics.exposition",
    "broker_core.protocol",
    "broker_core.remoting.client",
    # The argument of a handler of pushed requests.
    "broker_core.remoting.connection",
}
PAGES = CONSOLE | {
    "console.lib",
    "console.accounts",
    "console.ui",
    "console.people",
    "console.gateway",
    "console.processes",
}

MAY_IMPORT: dict[str, set[str]] = {
    "broker_core.allocator": set(),
    "broker_core.errors": set(),
    "broker_core.backlog": {"broker_core.isolation"},
    "broker_core.steps": set(),
    "broker_core.clock": set(),
    "broker_core.config": {"broker_core.errors"},
    "broker_core.counted_log": {"broker_core.clock"},
    "broker_core.isolation": {"broker_core.clock"},
    "broker_core.environment": set(),
    "broker_core.log_lines": set(),
    "broker_core.service": {"broker_core.errors", "broker_core.clock"},
    "broker_core.storage": {"broker_core.errors"},
    "broker_core.message": {"broker_core.errors"},
    "broker_core.formats": {"broker_core.errors", "broker_core.message"},
    "broker_core.protocol": {"broker_core.errors", "broker_core.message", "broker_core.steps"},
    "broker_core.store": SERVICE - {"broker_core.store"},
    "broker_core.listening": {
        "broker_core.errors",
        "broker_core.clock",
        "broker_core.config",
        "broker_core.service",
        "broker_core.steps",
        "broker_core.protocol.proxy_header",
    },
    "broker_core.remoting": {
        "broker_core.errors",
        "broker_core.clock",
        "broker_core.isolation",
        "broker_core.config",
        "broker_core.service",
        "broker_core.protocol",
        "broker_core.listening",
    },
    "broker_core.http2": {
        "broker_core.errors",
        "broker_core.clock",
        "broker_core.service",
        "broker_core.grpc_messages",
        "broker_core.listening",
    },
    "broker_core.grpc_messages": {"broker_core.errors", "broker_core.message"},
    # Entry points for gRPC: a message, one request of a handler, an answer.
    "broker_core.grpc_services": SERVICE
    | {
        "broker_core.protocol",
        "broker_core.listening",
        "broker_core.remoting",
        "broker_core.http2",
        "broker_core.grpc_messages",
        "broker_core.processors",
        "broker_core.ha",
    }
    | {f"broker_core.{name}" for name in (*SERVICES, "access", "extensions")},
    **{f"broker_core.{name}": SERVICE for name in SERVICES},
    # A watch's data is freed all at once.
    "broker_core.trace": SERVICE | {"broker_core.allocator"},
    # It rejects requests, by their codes.
    "broker_core.transaction": SERVICE | {"broker_core.protocol.codes"},
    "broker_core.timers": SERVICE | {"broker_core.protocol.codes"},
    # The configuration files are fastjson's text, like the bodies.
    "broker_core.metadata": SERVICE | {"broker_core.allocator", "broker_core.protocol.java_json"},
    "broker_core.clients": SERVICE | {"broker_core.delivery"},
    # The configured topics and groups decide a message's destination; a delayed one goes to the
    # service that forwards it.
    "broker_core.sending": SERVICE
    | {
        "broker_core.protocol.codes",
        "broker_core.metadata",
        "broker_core.delay",
        "broker_core.timers",
        "broker_core.transaction",
    },
    # A group's leases move its offsets; pops wait along with pulls.
    "broker_core.pop": SERVICE | {"broker_core.metadata", "broker_core.delivery"},
    # It reads requests: their accounts and required permissions.
    "broker_core.access": SERVICE | {"broker_core.protocol"},
    # Hooks receive requests and answers.
    "broker_core.extensions": SERVICE | {"broker_core.protocol"},
    # A slave copies its master's tables.
    "broker_core.ha": SERVICE
    | {
        "broker_core.protocol",
        "broker_core.listening",
        "broker_core.remoting",
        "broker_core.metadata",
        "broker_core.delay",
    },
    # It reads metrics everywhere; one of our requests reads the same.
    "broker_core.metrics": SERVICE
    | {"broker_core.listening", "broker_core.remoting", "broker_core.ha"}
    | {f"broker_core.{name}" for name in SERVICES},
    "broker_core.processors": SERVICE
    | {"broker_core.protocol", "broker_core.remoting", "broker_core.ha", "broker_core.metrics"}
    | {f"broker_core.{name}" for name in (*SERVICES, "access", "extensions")},
    # Compiled twins: each extension, with the files that it includes, imports the classes and
    # constants of its Python twin. Choosing and building extensions needs no twin.
    "broker_core.native.build": {"broker_core.native.paths"},
    # Values from the bottom layers, and the names in a trace event.
    "broker_core.native.constants": {
        "broker_core.formats",
        "broker_core.grpc_messages",
        "broker_core.http2",
        "broker_core.message",
        "broker_core.protocol",
        "broker_core.trace",
    },
    "broker_core.native.loading": {
        "broker_core.errors",
        "broker_core.native.paths",
        # Types only.
        "broker_core.native.turn",
    },
    "broker_core.native.paths": set(),
    "broker_core.native.pack": set(),
    "broker_core.native.scan": {"broker_core.native.constants"},
    "broker_core.native.records": {
        "broker_core.native.constants",
        "broker_core.native.pack",
        "broker_core.native.scan",
    },
    "broker_core.native.grpc": {
        "broker_core.errors",
        "broker_core.grpc_messages",
        "broker_core.http2",
        "broker_core.native.constants",
    },
    "broker_core.native.turn": SERVICE
    | {
        "broker_core.native.constants",
        "broker_core.native.pack",
        "broker_core.native.scan",
        "broker_core.remoting",
        "broker_core.ha",
    }
    | {f"broker_core.{name}" for name in ("clients", "delivery", "metadata", "stats", "trace")}
    | {"broker_core.transaction"},
    "broker_core.namesrv": BASE
    | {
        "broker_core.config",
        "broker_core.counted_log",
        "broker_core.service",
        "broker_core.steps",
        "broker_core.storage",
        "broker_core.protocol",
        "broker_core.listening",
        "broker_core.remoting",
    },
    # The independent reader: the format tables, and nothing from the store.
    "broker_core.verify": {"broker_core.formats", "broker_core.message"},
    # The composition root and the command line may import everything.
    "broker_core.broker": {"broker_core"},
    "broker_core.composition": {"broker_core"},
    "broker_core.__main__": {"broker_core"},
    "analytics": {
        "broker_core.allocator",
        "broker_core.clock",
        "broker_core.environment",
        "broker_core.errors",
        "broker_core.isolation",
        "broker_core.log_lines",
        "broker_core.formats",
        "broker_core.message",
        "broker_core.native.loading",
        "broker_core.protocol",
        "broker_core.remoting.client",
    },
    # Reading and decoding, without Spark; then the sources, which Spark calls.
    "analytics.store": {
        "analytics.errors",
        "broker_core.errors",
        "broker_core.formats",
        "broker_core.message",
        # The location of compiled code: the bulk record reader has a twin here.
        "broker_core.native.loading",
    },
    # A cluster over TCP, without Spark.
    "analytics.remote": {
        "analytics.errors",
        "broker_core.clock",
        "broker_core.errors",
        "broker_core.message",
        "broker_core.protocol",
        "broker_core.remoting.client",
    },
    "analytics.sources": {
        "analytics.errors",
        "analytics.schemas",
        "analytics.store",
        "analytics.remote",
        "broker_core.clock",
        "broker_core.message",
        "broker_core.formats.record_columns",
    },
    # The lake, without Spark: its batch writers also run in Spark's workers.
    "analytics.lake": {
        "analytics.errors",
        "analytics.low_priority",
        "analytics.store",
        "broker_core.isolation",
        "broker_core.allocator",
        "broker_core.log_lines",
        "broker_core.message",
    },
    # SQL over the lake, in a process of its own.
    "analytics.query": {"analytics.errors", "analytics.low_priority", "analytics.lake"},
    "analytics.transforms": {"analytics.schemas"},
    "analytics.reports": {
        "analytics.facts",
        "analytics.schemas",
        "analytics.transforms",
        "broker_core.message",
    },
    "console": CONSOLE,
    # The console from the bottom to the top; the test also forbids import cycles between its apps.
    "console.lib": {"broker_core.message"},
    "console.accounts": {"console.lib", "broker_core.message"},
    "console.ui": {"console.lib", "console.accounts"},
    "console.people": {
        "console.lib",
        "console.accounts",
        "console.ui",
        "console.env",
        "console.secret_key",
        "broker_core.message",
    },
    # The gateway masks the messages that it returns.
    "console.gateway": CONSOLE | {"console.lib", "console.accounts", "console.people.masking"},
    "console.celery": {"console.lib"},
    "console.demo": PAGES,
    "console.connect": PAGES,
    "console.observe.history": PAGES,
    "console.observe.verdicts": PAGES | {"console.observe.history"},
    "console.observe.marks": PAGES | {"console.observe.history"},
    "console.observe.alerts": PAGES | {"console.observe.history", "console.observe.verdicts"},
    "console.messages": PAGES | {"console.observe.history"},
    "console.data": PAGES | {"console.celery", "console.observe.history", "console.observe.alerts"},
    # The flow uses the sockets of Live; metrics include the lake, the reports and the demo.
    "console.observe": PAGES
    | {
        "console.messages.tracing",
        "console.data.pipeline",
        "console.data.reports",
        "console.demo",
    },
    "console.broker": PAGES | {"console.observe"},
    "console.api": PAGES
    | {
        "console.broker",
        "console.messages",
        "console.observe",
        "console.data",
        "console.demo",
    },
    "deploy": DEPLOY_OUTSIDE,
    **{
        f"deploy.{name}": {f"deploy.{one}" for one in below} | DEPLOY_OUTSIDE
        for name, below in DEPLOY.items()
    },
    # Before anything is installed, only the standard library and these modules exist.
    "deploy.terminal": set(),
    "deploy.install": {"deploy.terminal", "broker_core.environment"},
    "deploy.settings": {
        "deploy.terminal",
        "deploy.install",
        "broker_core.config.broker",
        "broker_core.config.spelling",
        "broker_core.environment",
    },
    # Tests may import tools, and both use tests/support: brokers, clients, clocks and disks for
    # tests and tools. The product imports none of them, because it's installed alone.
    "tests.support": PRODUCT,
    "tools": PRODUCT | {"tests.support"},
}

# Forbidden whatever the rows above allow: these arrows would undo the layers.
NEVER = {
    ("broker_core.formats", "broker_core.protocol"),
    ("broker_core.protocol", "broker_core.formats"),
    ("broker_core.store", "broker_core.remoting"),
    ("broker_core.store", "broker_core.protocol"),
    ("broker_core.store", "broker_core.trace"),
    ("broker_core.store", "broker_core.stats"),
    *(
        ("broker_core.listening", f"broker_core.{name}")
        for name in ("store", "formats", "remoting", "http2", "trace", "stats")
    ),
    ("broker_core.remoting", "broker_core.http2"),
    *(
        ("broker_core.http2", f"broker_core.{name}")
        for name in ("store", "formats", "protocol", "remoting", "trace", "stats")
    ),
    *(
        ("broker_core.grpc_messages", f"broker_core.{name}")
        for name in ("formats", "protocol", "http2")
    ),
    ("broker_core.remoting", "broker_core.store"),
    ("broker_core.remoting", "broker_core.formats"),
    ("broker_core.remoting", "broker_core.trace"),
    ("broker_core.remoting", "broker_core.stats"),
    *((f"broker_core.{name}", "broker_core.remoting") for name in (*SERVICES, "access")),
    *((f"broker_core.{name}", "broker_core.processors") for name in (*SERVICES, "access")),
    *(("console", f"broker_core.{name}") for name in ("store", "formats", "metadata")),
    *(("analytics", f"broker_core.{name}") for name in ("store", "metadata")),
    ("console", "analytics"),
    ("analytics", "console"),
}

WAITING = {"asyncio", "socket", "ssl", "threading", "subprocess", "time", "os"}
NEVER_OUTSIDE = {
    "broker_core.message": WAITING,
    "broker_core.formats": WAITING,
    "broker_core.protocol": WAITING,
    "broker_core.grpc_messages": WAITING,
    "broker_core.sending": {"asyncio", "socket", "ssl", "threading"},
    "broker_core.store": {"socket", "ssl"},
    "broker_core": {"django", "pyspark", "celery", "redis"},
    "console": {"pyspark"},
    "analytics": {"django", "celery", "redis"},
    # Decoding is tested, and used by tools, without a JVM.
    "analytics.store": {"pyspark"},
    "analytics.lake": {"pyspark"},
    "analytics.query": {"pyspark"},
}


# The gateway's requests that change something; pages and the API make them through a service,
# which also checks the plan and writes the audit entry.
GATEWAY_WRITES = {
    "cluster": {"configure", "promote"},
    "accounts": {"save", "delete", "set_white_addresses"},
    "naming": {"put", "remove", "set_writable"},
    "topics": {"save", "delete"},
    "groups": {"save", "delete", "disconnect"},
    "offsets": {"commit", "reset_online", "move_online"},
    "files": {"drop_topic", "drop_group", "move_delay", "save_filter", "drop_filter"},
    "repair": {"resend"},
    "sending": {"send", "end", "decide", "check", "deliver"},
    "recorder": {"set_level"},
}
