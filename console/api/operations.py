"""What the API is made of: each operation with its address, its scope, its role, and its pages.

An operation names the pages whose work it does (`pages`), so that a test can tell what is missing.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, TypeVar

from django.core.exceptions import PermissionDenied
from django.db import OperationalError
from django.http import Http404, HttpResponse
from django.utils.translation import gettext as _
from ninja import NinjaAPI
from ninja.errors import HttpError, ValidationError
from ninja.security import HttpBearer

from console.accounts.permissions import require_administrator, require_operator
from console.accounts.rights import NotAllowedError, ScopeMissingError, rights_on
from console.accounts.scopes import has, scope_of
from console.api.frame import token_on
from console.api.problems import CONTENT_TYPE, ProblemError, answer, sentence_for, status_of
from console.api.requestbody import schema_of
from console.files.rights import require_change_of_any
from console.gateway.errors import GatewayError
from console.history.database import HistoryError
from console.sql.rights import may_query
from console.ui import database

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from django.forms import BaseForm
    from django.http import HttpRequest

    from console.accounts.actions import Action
    from console.api.models import ApiToken

Handler = TypeVar("Handler", bound="Callable[..., Any]")

DESCRIPTION = """\
All that the console's pages do, for programs. Send `Authorization: Bearer TOKEN`; tokens are made
on the page `/api/`. Operations that change something take `?dry_run=true` where they have a plan
to show, and an `Idempotency-Key`. Problems are `application/problem+json`.
"""


class Need(Enum):
    """Whom an operation lets in: the same people as its pages."""

    LOOK = "viewer"
    OPERATE = "operator"
    CONFIGURE = "topic.change, group.change or offset.reset"
    ADMINISTER = "administrator"
    ASK_THE_LAKE = "sql"

    def require(self, request: HttpRequest) -> None:
        """Refuse all others.

        Raises:
            PermissionDenied: the token's owner may not do this.
        """
        match self:
            case Need.LOOK:
                return
            case Need.OPERATE:
                require_operator(request)
            case Need.CONFIGURE:
                require_change_of_any(rights_on(request).of_owner)
            case Need.ADMINISTER:
                require_administrator(request)
            case Need.ASK_THE_LAKE:
                if not may_query(request.user):
                    raise PermissionDenied


@dataclass(frozen=True, slots=True)
class Operation:
    """One thing that programs can do.

    Attributes:
        also: scopes that it takes beside the one of its area.
        varying: which further ones depend on what is asked for, in words.
    """

    name: str
    method: str
    path: str
    area: str
    need: Need | Action
    pages: tuple[str, ...]
    named: str = ""
    also: tuple[str, ...] = ()
    varying: str = ""

    @property
    def shown_path(self) -> str:
        """The address as the schema writes it."""
        return self.path.replace("{path:", "{")

    @property
    def writes(self) -> bool:
        return self.method != "GET"

    def require(self, request: HttpRequest) -> None:
        """Refuse whoever may not do this, with the name that the address has.

        Raises:
            PermissionDenied: the token's owner may not do this.
        """
        if isinstance(self.need, Need):
            self.need.require(request)
        elif self.named:
            match = request.resolver_match
            assert match is not None  # an address of ours was found
            rights_on(request).of_owner.require(self.need, str(match.kwargs[self.named]))
        else:
            rights_on(request).of_owner.require_somewhere(self.need)

    @property
    def scopes(self) -> tuple[str, ...]:
        """All scopes that it takes, whatever is asked for."""
        return (scope_of(self.area, writes=self.writes), *self.also)


OPERATIONS: dict[str, Operation] = {}


class BearerToken(HttpBearer):
    """Lets a token do an operation: by its scopes, then by what its owner may."""

    def __init__(self, operation: Operation) -> None:
        super().__init__()
        self._operation = operation

    def authenticate(self, request: HttpRequest, token: str) -> ApiToken:
        """Return the token that the frame has found.

        Raises:
            ScopeMissingError: it lacks a scope.
            PermissionDenied: its owner may not do this.
        """
        found, operation = token_on(request), self._operation
        require_scopes(request, *operation.scopes)
        operation.require(request)
        return found


def require_scopes(request: HttpRequest, *needed: str) -> None:
    """Refuse a token without these scopes.

    Raises:
        ScopeMissingError: it lacks one; the first is named.
    """
    scopes = token_on(request).scopes
    for each in needed:
        if not has(scopes, each):
            raise ScopeMissingError(each)


api = NinjaAPI(
    title="Trebuchet",
    version="1",
    description=DESCRIPTION,
    openapi_url=None,
    docs_url=None,
    urls_namespace="v1",
)
PROBLEM = {
    "description": "Why it was not done.",
    "content": {CONTENT_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}},
}


def operation(
    method: str,
    path: str,
    *,
    area: str,
    need: Need | Action = Need.LOOK,
    named: str = "",
    also: tuple[str, ...] = (),
    varying: str = "",
    pages: tuple[str, ...] = (),
    response: Any = None,
    status: int = 200,
    form: type[BaseForm] | None = None,
    body: Mapping[str, Any] | None = None,
    file: str = "",
) -> Callable[[Handler], Handler]:
    """Make a function an operation of the API.

    Args:
        need: the role or the action that it takes.
        named: the part of the address with the topic or group of that action; without one it
            begins for whoever may do it somewhere, and asks `require` once it knows the name.
        also: scopes that it takes beside the one of its area.
        varying: which further ones depend on what is asked for, in words for people.
        form: the form whose fields the body may have.
        body: the JSON schema of the body, instead of a form.
        file: the type of the file that it answers, instead of `response`.
    """

    def registered(handler: Handler) -> Handler:
        name = handler.__name__
        assert name not in OPERATIONS, f"two operations are named {name}"
        made = Operation(name, method, f"/api/v1{path}", area, need, pages, named, also, varying)
        OPERATIONS[name] = made
        summary, _blank, _rest = (handler.__doc__ or "").partition("\n")
        extra: dict[str, Any] = {
            "x-scope": " ".join(made.scopes),
            "x-role": need.value,
            "responses": {"4XX": PROBLEM, "5XX": PROBLEM},
        }
        wanted = body if body is not None else schema_of(form) if form is not None else None
        if wanted is not None:
            content = {"application/json": {"schema": dict(wanted)}}
            extra["requestBody"] = {"content": content, "required": True}
        if made.writes:
            extra["parameters"] = [IDEMPOTENCY_KEY]
        if file:
            extra["responses"] |= {str(status): file_response(file)}
        api.api_operation(
            [method],
            path,
            auth=[BearerToken(made)],
            response={status: response},
            tags=[area],
            operation_id=name,
            summary=summary.rstrip("."),
            openapi_extra=extra,
            url_name=name,
        )(handler)
        return handler

    return registered


IDEMPOTENCY_KEY = {
    "in": "header",
    "name": "Idempotency-Key",
    "required": False,
    "schema": {"type": "string", "minLength": 1, "maxLength": 128},
    "description": "The same key brings the same answer for a day, and does nothing again.",
}


def file_response(content_type: str) -> dict[str, Any]:
    schema = {"type": "string", "contentMediaType": content_type}
    return {"description": "The file.", "content": {content_type: {"schema": schema}}}


@api.exception_handler(ProblemError)
def on_problem(request: HttpRequest, error: ProblemError) -> HttpResponse:
    return answer(request, error.status, error.detail, errors=error.errors, more=error.more)


@api.exception_handler(ValidationError)
def on_bad_parameter(request: HttpRequest, error: ValidationError) -> HttpResponse:
    errors = [
        {"field": ".".join(str(part) for part in each["loc"][1:]), "problem": str(each["msg"])}
        for each in error.errors
    ]
    detail = " ".join(f"{each['field']}: {each['problem']}." for each in errors)
    return answer(request, HTTPStatus.UNPROCESSABLE_ENTITY, detail, errors=errors)


@api.exception_handler(GatewayError)
def on_broker_problem(request: HttpRequest, error: GatewayError) -> HttpResponse:
    return answer(request, status_of(error), f"{error.what} {error.advice}".strip())


@api.exception_handler(HistoryError)
def on_history_problem(request: HttpRequest, error: HistoryError) -> HttpResponse:
    return answer(request, HTTPStatus.SERVICE_UNAVAILABLE, str(error))


@api.exception_handler(OperationalError)
def on_database_problem(request: HttpRequest, error: OperationalError) -> HttpResponse:
    return answer(request, HTTPStatus.SERVICE_UNAVAILABLE, database.sentence_for(error))


@api.exception_handler(Http404)
def on_missing(request: HttpRequest, error: Http404) -> HttpResponse:
    said = str(error) if error.args and isinstance(error.args[0], str) else ""
    missing = _("There is no such thing (any more).")
    is_sentence = bool(said) and "matches the given query" not in said
    return answer(request, HTTPStatus.NOT_FOUND, said if is_sentence else missing)


@api.exception_handler(PermissionDenied)
def on_denied(request: HttpRequest, error: PermissionDenied) -> HttpResponse:
    if isinstance(error, ScopeMissingError):
        detail = _("This token lacks the scope %(scope)s.") % {"scope": error.scope}
    elif isinstance(error, NotAllowedError):
        detail = _("This takes the role %(role)s, which the owner of this token does not have.")
        detail = detail % {"role": error.role.label}
        if error.action is not None and error.name:
            detail = _("The owner of this token may not do this with %(name)s (%(action)s).")
            detail = detail % {"name": error.name, "action": error.action.value}
    else:
        detail = str(error) or sentence_for(HTTPStatus.FORBIDDEN)
    return answer(request, HTTPStatus.FORBIDDEN, detail)


@api.exception_handler(HttpError)
def on_http_error(request: HttpRequest, error: HttpError) -> HttpResponse:
    return answer(request, error.status_code, str(error))
