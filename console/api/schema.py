"""The API as a whole: its addresses, and its schema in OpenAPI 3.1."""

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

# Each adds its operations when it is imported.
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
    """Return the addresses of all operations; the frame lets in who has a token."""
    patterns = (each for each in api.urls[0] if isinstance(each, URLPattern))
    return [each for each in patterns if each.name != "api-root"]


@lru_cache(maxsize=1)
def openapi() -> dict[str, Any]:
    """Return the schema; it is the same for everybody."""
    found: dict[str, Any] = dict(api.get_openapi_schema(path_prefix="/api/v1/"))
    components = found["components"]
    components["schemas"]["Problem"] = Problem.json_schema()
    components["securitySchemes"] = {"BearerToken": {"type": "http", "scheme": "bearer"}}
    found["servers"] = [{"url": settings.TREBUCHET_URL}]
    return found
