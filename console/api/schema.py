"""The complete API: its URL patterns and its OpenAPI 3.1 schema."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from django.conf import settings
from django.urls import URLPattern

from console.api.operations import api
from console.api.schemas import Problem
from console.api.v1 import (
    alerts,
    audit,
    broker_accounts,
    brokers,
    clients,
    dead_letters,
    files,
    groups,
    history,
    labels,
    lake,
    marks,
    messages,
    naming,
    offsets,
    people,
    reports,
    roles,
    sending,
    sql,
    topics,
    tracing,
    waiting,
)

# Importing a module registers its operations.
AREAS = (
    brokers,
    broker_accounts,
    naming,
    files,
    topics,
    groups,
    clients,
    offsets,
    sending,
    messages,
    dead_letters,
    history,
    marks,
    alerts,
    reports,
    lake,
    audit,
    people,
    roles,
    tracing,
    waiting,
    labels,
    sql,
)


def addresses() -> list[URLPattern]:
    """Return the URL patterns of all operations; the middleware checks tokens."""
    patterns = (each for each in api.urls[0] if isinstance(each, URLPattern))
    return [each for each in patterns if each.name != "api-root"]


@lru_cache(maxsize=1)
def openapi() -> dict[str, Any]:
    """Return the schema, which is the same for everyone."""
    found: dict[str, Any] = dict(api.get_openapi_schema(path_prefix="/api/v1/"))
    components = found["components"]
    components["schemas"]["Problem"] = Problem.json_schema()
    components["securitySchemes"] = {"BearerToken": {"type": "http", "scheme": "bearer"}}
    found["servers"] = [{"url": settings.TREBUCHET_URL}]
    return found
