"""The API's operations: each has a path, a scope, a required right, and the pages it corresponds
to.

`pages` lets a test find console pages that have no operation.
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
from console.accounts.roles import may_query
from console.accounts.scopes import has, scope_of
from console.api.frame import token_on
from console.api.problems import CONTENT_TYPE, ProblemError, answer, sentence_for, status_of
from console.api.requestbody import schema_of
from console.broker.files.rights import require_change_of_any
from console.gateway.errors import GatewayError
from console.observe.history.database import HistoryError
from console.ui import database

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from django.forms import BaseForm
    from django.http import HttpRequest

    from console.accounts.actions import Action
    from console.api.models import ApiToken

Handler = TypeVar("Handler", bound="Callable[..., Any]")

DESCRIPTION = """\
Automate everything the console's pages do. Send `Authorization: Bearer TOKEN`; create tokens on the
page `/api/`. Write operations accept an `Idempotency-Key`, and `?dry_run=true` if they can preview
the change. Errors are `application/problem+json`.
"""


class Need(Enum):
    """Who can call an operation: the same people who can open its pages."""

    LOOK = "viewer"
    OPERATE = "operator"
    CONFIGURE = "topic.change, group.change or offset.reset"
    ADMINISTER = "administrator"
    ASK_THE_LAKE = "sql"

    def require(self, request: HttpRequest) -> None:
        """Check that the request's user has this right.

        Raises:
            PermissionDenied: the token's owner lacks the right.
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
    """An API operation.

    Attributes:
        also: scopes it requires in addition to the scope of its area.
        varying: describes scopes that depend on the request.
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
        """The path as the schema writes it."""
        return self.path.replace("{path:", "{")

    @property
    def writes(self) -> bool:
        return self.method != "GET"

    def require(self, request: HttpRequest) -> None:
        """Check the right that the operation needs, for the topic or group in the path if it has
        one.

        Raises:
            PermissionDenied: the token's owner lacks the right.
        """
        if isinstance(self.need, Need):
            self.need.require(request)
        elif self.named:
            match = request.resolver_match
            assert match is not None  # the URL pattern matched
            rights_on(request).of_owner.require(self.need, str(match.kwargs[self.named]))
        else:
            rights_on(request).of_owner.require_somewhere(self.need)

    @property
    def scopes(self) -> tuple[str, ...]:
        """All scopes that every request to the operation needs."""
        return (scope_of(self.area, writes=self.writes), *self.also)


OPERATIONS: dict[str, Operation] = {}


class BearerToken(HttpBearer):
    """Checks a token's scopes, then its owner's rights."""

    def __init__(self, operation: Operation) -> None:
        super().__init__()
        self._operation = operation

    def authenticate(self, request: HttpRequest, token: str) -> ApiToken:
        """Return the token that the middleware found.

        Raises:
            ScopeMissingError: the token lacks a scope.
            PermissionDenied: the owner lacks the right.
        """
        found, operation = token_on(request), self._operation
        require_scopes(request, *operation.scopes)
        operation.require(request)
        return found


def require_scopes(request: HttpRequest, *needed: str) -> None:
    """Check that the token has these scopes.

    Raises:
        ScopeMissingError: a scope is missing; the error names the first.
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
    "description": "The request failed; `detail` says why.",
    "content": {CONTENT_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}},
}


def operation(  # noqa: PLR0913  each is a keyword
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
    """Register a function as an operation of the API.

    Args:
        need: the role or action it requires.
        named: the path parameter with the topic or group that `need` applies to. Without it, the
            operation starts for anyone who has the right on some topic or group, and calls
            `require` once it has the name.
        also: scopes it requires in addition to the scope of its area.
        varying: describes scopes that depend on the request, for people.
        form: the form that defines the body's fields.
        body: the JSON schema of the body, instead of a form.
        file: the content type of the file it returns, instead of `response`.
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
    "description": "A repeated key returns the stored response for a day, without writing again.",
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
    text = str(error) if error.args and isinstance(error.args[0], str) else ""
    missing = _("The resource doesn't exist or was deleted.")
    is_sentence = bool(text) and "matches the given query" not in text
    return answer(request, HTTPStatus.NOT_FOUND, text if is_sentence else missing)


@api.exception_handler(PermissionDenied)
def on_denied(request: HttpRequest, error: PermissionDenied) -> HttpResponse:
    if isinstance(error, ScopeMissingError):
        detail = _("This token doesn't have the scope %(scope)s.") % {"scope": error.scope}
    elif isinstance(error, NotAllowedError):
        detail = _("This requires the role %(role)s, which the owner of this token doesn't have.")
        detail = detail % {"role": error.role.label}
        if error.action is not None and error.name:
            detail = _(
                "The owner of this token isn't allowed to do this with %(name)s (%(action)s)."
            )
            detail = detail % {"name": error.name, "action": error.action.value}
    else:
        detail = str(error) or sentence_for(HTTPStatus.FORBIDDEN)
    return answer(request, HTTPStatus.FORBIDDEN, detail)


@api.exception_handler(HttpError)
def on_http_error(request: HttpRequest, error: HttpError) -> HttpResponse:
    return answer(request, error.status_code, str(error))
