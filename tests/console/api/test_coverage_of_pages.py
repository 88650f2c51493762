"""The API can do everything that pages can, checked against the URLconf."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from console.api.operations import OPERATIONS
from tests.console.test_addresses import ALL, url_of

if TYPE_CHECKING:
    from django.test import Client

pytestmark = pytest.mark.django_db

# Addresses without an operation, and why.
OF_BROWSERS = "It is about a browser's session, which a program does not have."
OF_PEOPLE = "How pages look to a person."
ELSEWHERE = "It is for programs itself."
TOKENS_MAKE_NO_TOKENS = "A token must not make others: people do, on the page."
BY_COMMAND = "Pipelines have `manage.py config` for this, with its codes of exit."
LEADS_ON = "It leads to another page."
EXCEPTIONS = {
    "accounts:code": OF_BROWSERS,
    "accounts:join": OF_BROWSERS,
    "accounts:oidc": OF_BROWSERS,
    "accounts:oidc-callback": OF_BROWSERS,
    "accounts:password": OF_BROWSERS,
    "accounts:second-step": OF_BROWSERS,
    "accounts:second-step-codes": OF_BROWSERS,
    "accounts:second-step-off": OF_BROWSERS,
    "accounts:second-step-set-up": OF_BROWSERS,
    "accounts:session-end": OF_BROWSERS,
    "accounts:sessions": OF_BROWSERS,
    "accounts:sessions-end": OF_BROWSERS,
    "accounts:sign-in": OF_BROWSERS,
    "accounts:sign-out": OF_BROWSERS,
    "alerts:silence-link": "A link in a message is its own permission.",
    "api:index": "It is about the API.",
    "api:openapi": ELSEWHERE,
    "api:token-create": TOKENS_MAKE_NO_TOKENS,
    "api:token-delete": TOKENS_MAKE_NO_TOKENS,
    "browse:of-group": LEADS_ON,
    "family:export": "The family is there as JSON by its operation.",
    "files:alike": BY_COMMAND,
    "files:drift": BY_COMMAND,
    "files:export": BY_COMMAND,
    "files:import": BY_COMMAND,
    "files:schema": "It helps people who type; what is wrong with a file is said when it is sent.",
    "gallery": OF_PEOPLE,
    "healthz": ELSEWHERE,
    "marks:api": ELSEWHERE,
    "marks:token-create": TOKENS_MAKE_NO_TOKENS,
    "marks:token-delete": TOKENS_MAKE_NO_TOKENS,
    "metrics": ELSEWHERE,
    "palette:entries": LEADS_ON,
    "preferences:language": OF_PEOPLE,
    "preferences:own": OF_PEOPLE,
    "preferences:place": OF_PEOPLE,
    "preferences:theme": OF_PEOPLE,
    "readyz": ELSEWHERE,
    "reports:png": "A picture of points that the run has as numbers.",
    "tracing:river": "A stream over a WebSocket, which asks brokers while somebody watches.",
    "tracing:topics": "Names for a field of the live page; the list of topics has them.",
    "words": OF_PEOPLE,
}

# Previews, which the operation itself offers as dry_run.
PREVIEWS = {"alerts:rule-preview", "dead_letters:preview", "offsets:preview"}


def methods_of(client: Client, name: str, parameters: list[str]) -> set[str]:
    """Return the methods that an address accepts, without side effects."""
    text = client.options(url_of(name, parameters)).get("Allow", "")
    return set(text.replace(" ", "").split(","))


def operations_of(page: str, *, writes: bool) -> list[str]:
    found = (each for each in OPERATIONS.values() if page in each.pages)
    return [each.name for each in found if each.writes == writes]


def test_each_page_that_shows_something_has_an_equivalent_operation(actors, brokers) -> None:
    lacking = []
    for name, parameters in ALL:
        if name in EXCEPTIONS or operations_of(name, writes=False):
            continue
        if name in PREVIEWS and operations_of(name, writes=True):
            continue
        if "POST" not in methods_of(actors.admin, name, parameters):
            lacking.append(name)

    assert not lacking, " ".join(lacking)


def test_each_page_that_changes_something_has_an_equivalent_operation(actors, brokers) -> None:
    lacking = [
        name
        for name, parameters in ALL
        if name not in EXCEPTIONS
        and "POST" in methods_of(actors.admin, name, parameters)
        and not operations_of(name, writes=True)
        # An export only reads; the audit records the user.
        and not ("export" in name and operations_of(name, writes=False))
    ]

    assert not lacking, " ".join(lacking)


def test_operations_exceptions_and_pages_exist() -> None:
    names = {name for name, _parameters in ALL}

    assert set(EXCEPTIONS) <= names
    assert {page for each in OPERATIONS.values() for page in each.pages} <= names
    assert not set(EXCEPTIONS) & {page for each in OPERATIONS.values() for page in each.pages}
    assert all(each.pages for each in OPERATIONS.values())
