"""Middleware for API requests: token, rate limit, idempotency key and ETag."""

from __future__ import annotations

import hashlib
from http import HTTPStatus
from typing import TYPE_CHECKING

from django.utils.cache import get_conditional_response
from django.utils.translation import gettext as _

from console.api import answers
from console.api.limits import count
from console.api.models import KEY_CHARACTERS_MAX
from console.api.problems import CONTENT_TYPE, answer, sentence_for
from console.api.tokens import is_usable, note_use, token_of
from console.lib.moment import now_ms
from console.people.audit.record import address_of, refused
from console.people.audit.requests import TOKEN

if TYPE_CHECKING:
    from collections.abc import Callable

    from django.http import HttpRequest, HttpResponse

    from console.api.models import ApiToken

BELOW = "/api/v1/"
SCHEMA = "/api/v1/openapi.json"
"""People who are signed in can read it without a token."""
TOKEN_ATTRIBUTE = "trebuchet.api_token"
SAFE = frozenset({"GET", "HEAD"})
BODY_OMITTED = "trebuchet.answer_unkept"


def omit_stored_body(request: HttpRequest) -> None:
    """Don't store the body of this response, because it holds a secret that is shown only once."""
    request.META[BODY_OMITTED] = True


def token_on(request: HttpRequest) -> ApiToken:
    """Return the token that authenticated an API request."""
    token: ApiToken = request.META[TOKEN_ATTRIBUTE]
    return token


class ApiFrame:
    """Middleware for paths below /api/v1/, which require a token and ignore sessions."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self._get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        is_program = request.path_info.startswith(BELOW)
        if request.path_info == SCHEMA and "Authorization" not in request.headers:
            is_program = False
        if not is_program:
            return self._get_response(request)
        response = self._answered(request)
        response["Cache-Control"] = (
            "no-store" if request.method not in SAFE else "private, no-cache"
        )
        return response

    def _answered(self, request: HttpRequest) -> HttpResponse:
        now = now_ms()
        token = token_of(request.headers.get("Authorization", ""))
        if token is None or not is_usable(token, now):
            return self._refused(request, token)
        request.user = token.owner
        request.META[TOKEN_ATTRIBUTE], request.META[TOKEN] = token, token.name
        # The rights of this request are limited to the token's scopes.
        request.token_scopes = frozenset(token.scopes)  # type: ignore[attr-defined]
        allowance = count(token.pk, now)
        if allowance.left < 0:
            detail = _(
                "The limit is %(count)d requests per minute for each token. Try again in "
                "%(seconds)d s."
            )
            values = {"count": allowance.limit, "seconds": allowance.resets_s}
            response: HttpResponse = answer(request, HTTPStatus.TOO_MANY_REQUESTS, detail % values)
        else:
            note_use(token, address_of(request), now)
            response = self._once(request, token, now)
        for name, value in allowance.headers.items():
            response[name] = value
        return response

    def _refused(self, request: HttpRequest, token: ApiToken | None) -> HttpResponse:
        if token is None:
            detail = _(
                "Send an Authorization header with Bearer and a token. Create tokens on the "
                "page /api/."
            )
        elif not token.owner.is_active:
            detail = _("The owner of this token is disabled.")
        else:
            detail = _("This token has expired. Create a new one on the page /api/.")
        if request.headers.get("Authorization"):
            refused(request, "api.refused", token.name if token else "api", detail)
        response = answer(request, HTTPStatus.UNAUTHORIZED, detail)
        response["WWW-Authenticate"] = 'Bearer realm="Trebuchet"'
        return response

    def _once(self, request: HttpRequest, token: ApiToken, now: int) -> HttpResponse:
        """Answer a request; repeat the stored response if its idempotency key was used before."""
        key = request.headers.get(answers.HEADER, "")
        if request.method in SAFE or not key:
            return self._tagged(request, self._plain(request))
        if len(key) > KEY_CHARACTERS_MAX or not key.isprintable():
            detail = _("An idempotency key can have at most %(count)d printable characters.")
            values = {"count": KEY_CHARACTERS_MAX}
            return answer(request, HTTPStatus.BAD_REQUEST, detail % values)
        digest = answers.digest_of(request)
        row, is_new = answers.claim(token, key, digest, now)
        if is_new:
            response = self._plain(request)
            answers.keep(row, response, has_body=BODY_OMITTED not in request.META)
            return response
        if row.digest != digest:
            detail = _(
                "This idempotency key was already used for a different request. Use a new one."
            )
            return answer(request, HTTPStatus.UNPROCESSABLE_ENTITY, detail)
        if row.status is None:
            detail = _(
                "An earlier request with this idempotency key has no response: it's still "
                "running, or the console stopped. Check its result before you send it again "
                "with a new key."
            )
            return answer(request, HTTPStatus.CONFLICT, detail)
        return answers.stored_response(row)

    def _plain(self, request: HttpRequest) -> HttpResponse:
        """Answer a request; errors raised outside operations become problem documents too."""
        response = self._get_response(request)
        is_problem = response.get("Content-Type", "").startswith(CONTENT_TYPE)
        if response.status_code < HTTPStatus.BAD_REQUEST or is_problem:
            return response
        plain = answer(request, response.status_code, sentence_for(response.status_code))
        if "Allow" in response:
            plain["Allow"] = response["Allow"]
        return plain

    def _tagged(self, request: HttpRequest, response: HttpResponse) -> HttpResponse:
        """Add an ETag to a response; return 304 if the client already has this version."""
        if response.status_code != HTTPStatus.OK or response.streaming:
            return response
        etag = f'"{hashlib.sha256(response.content).hexdigest()[:32]}"'
        response["ETag"] = etag
        same = get_conditional_response(request, etag=etag, response=response)
        return response if same is None else same
