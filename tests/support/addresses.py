"""Every address of the console, read from its URLconf and split into pages and other addresses."""

from __future__ import annotations

from typing import TYPE_CHECKING

from django.urls import URLPattern, URLResolver, get_resolver, reverse

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

# Query strings with which tests open a page, by the page's name.
PAGES: dict[str, tuple[str, ...]] = {
    "accounts:password": ("",),
    "accounts:second-step": ("",),
    "accounts:second-step-set-up": ("",),
    "accounts:sessions": ("",),
    "alerts:channel-create": ("",),
    "alerts:channel-delete": ("",),
    "alerts:channel-edit": ("",),
    "alerts:channels": ("",),
    "alerts:history": ("",),
    "alerts:list": ("",),
    "alerts:preferences": ("",),
    "alerts:rule-create": ("",),
    "alerts:rule-delete": ("",),
    "alerts:rule-edit": ("",),
    "alerts:rules": ("",),
    "alerts:silence-end": ("",),
    "alerts:silence-link": ("",),
    "alerts:window-create": ("",),
    "alerts:window-delete": ("",),
    "alerts:window-edit": ("",),
    "alerts:windows": ("",),
    "api:index": ("",),
    "api:token-create": ("",),
    "api:token-delete": ("",),
    "audit:list": ("",),
    "broker_accounts:list": ("",),
    "broker_accounts:may": ("", "?action=send&address=10.0.0.1&name={topic}"),
    "broker_accounts:create": ("",),
    "brokers:configuration": ("", "?kind=live"),
    "brokers:delays": ("", "?level=3"),
    "brokers:detail": ("",),
    "brokers:inside": ("",),
    "brokers:key": ("",),
    "brokers:kv-delete": ("",),
    "brokers:kv-put": ("", "?namespace=ORDER_TOPIC_CONFIG&key={topic}"),
    "brokers:list": ("",),
    "brokers:name-servers": ("", "?topic={topic}"),
    "brokers:transactions": ("",),
    "brokers:write-perm": ("", "?do=add"),
    "browse:distribution": ("?topic={topic}&range=1h",),
    "browse:find": ("", "?by=key&topic={topic}&text=x", "?by=place&topic={topic}"),
    "browse:message": ("", "?as=tree", "?as=bytes"),
    "browse:search": ("", "?topic={topic}&range=1h", "?topic={topic}&range=1h&text=e"),
    "clients:disconnect": ("?client={member}",),
    "clients:producers": ("", "?kind=inner"),
    "dead_letters:discard": ("",),
    "dead_letters:group": ("",),
    "dead_letters:list": ("",),
    "dead_letters:preview": ("", "?target=retry&rate=100"),
    "dead_letters:run": ("",),
    "family:message": ("",),
    "files:drift": ("",),
    "files:edit": ("",),
    "files:history": ("?from={version}",),
    "files:import": ("",),
    "files:index": ("",),
    "files:restore": ("",),
    "files:show": ("",),
    "gallery": ("",),
    "groups:create": ("",),
    "groups:delete": ("",),
    "groups:detail": ("",),
    "groups:edit": ("",),
    "groups:label": ("",),
    "groups:list": ("",),
    "groups:queue": ("",),
    "lake:index": ("",),
    "marks:delete": ("",),
    "marks:list": ("",),
    "marks:token-delete": ("",),
    "masking:create": ("",),
    "masking:delete": ("",),
    "masking:edit": ("",),
    "masking:list": ("",),
    "offsets:index": ("", "?group={group}&topic={topic}"),
    "offsets:preview": ("?group={group}&topic={topic}&mode=earliest",),
    "offsets:restore": ("",),
    "overview:index": ("",),
    "people:detail": ("",),
    "people:invite": ("",),
    "people:list": ("",),
    "people:remove": ("",),
    "people:role-create": ("",),
    "people:role-delete": ("",),
    "people:role-edit": ("",),
    "people:roles": ("",),
    "people:second-step-off": ("",),
    "people:withdraw": ("",),
    "preferences:own": ("",),
    "reports:list": ("",),
    "reports:run": ("",),
    "reports:schedule": ("",),
    "reports:schedule-delete": ("",),
    "reports:schedule-new": ("",),
    "sending:send": ("", "?topic={topic}"),
    "sql:editor": ("",),
    "sql:rights": ("",),
    "sql:schedule": ("",),
    "topics:create": ("",),
    "topics:delete": ("",),
    "topics:detail": ("",),
    "topics:edit": ("",),
    "topics:label": ("",),
    "topics:purge": ("",),
    "topics:list": ("", "?kind=system"),
    "tracing:recorded": ("", "?ask=errors"),
    "tracing:river": ("",),
}
# The first two are public, and the second needs an invitation link. One needs a slave; the others
# need a broker with access control (tests/browser/test_operator_stories.py).
OTHER_PAGES = {
    "accounts:sign-in",
    "accounts:join",
    "broker_accounts:delete",
    "broker_accounts:edit",
    "broker_accounts:renew",
    "broker_accounts:white",
    "brokers:promote",
}

# Keys for addresses on an appliance that has just started; `console_objects` has the rest.
KEYS: dict[str, int | str] = {
    "broker_name": "broker-a",
    "broker_id": 0,
    "report": "traffic",
    "run_id": 1,
    "key": "transactionCheckMax",
    "namespace": "ORDER_TOPIC_CONFIG",
    "member": "a-member",
    "member_group": "standing-by",
    "file": "topics.json",
    "queue_id": 1,
    "offset": 5,
    "schedule_id": 1,
}
KINDS = {
    "files:restore": "version",
    "api:token-delete": "api_token",
    "marks:delete": "mark",
    "marks:token-delete": "mark_token",
}
"""The kind of a key whose kind differs from the first part of the address name."""
MEANT = {("brokers:kv-delete", "key"): "topic", ("clients:disconnect", "group"): "member_group"}
"""The key for a URL parameter that has a different name."""

# API operations take tokens and answer JSON; tests/console/api covers them.
OPERATIONS = "api:v1:"


def addresses(resolver: URLResolver, namespace: str = "") -> Iterator[tuple[str, list[str]]]:
    for each in resolver.url_patterns:
        if isinstance(each, URLResolver):
            inner = f"{namespace}{each.namespace}:" if each.namespace else namespace
            if inner != OPERATIONS:
                yield from addresses(each, inner)
        elif isinstance(each, URLPattern):
            yield f"{namespace}{each.name}", list(each.pattern.converters)


def every_address() -> list[tuple[str, list[str]]]:
    """Return the parameters of each address, by its name. API operations are left out."""
    return sorted(addresses(get_resolver()), key=lambda pair: pair[0])


def path_of(name: str, query: str, keys: Mapping[str, int | str]) -> str:
    """Return the path of an address, filled in with the given keys."""
    kind = KINDS.get(name) or name.partition(":")[2].partition("-")[0]
    parameters = dict(every_address())[name]
    values = {
        each: keys[kind if each == "pk" else MEANT.get((name, each), each)] for each in parameters
    }
    return reverse(name, kwargs=values) + query.format_map(keys)
