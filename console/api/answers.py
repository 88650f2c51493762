"""Responses to writes, kept for a day by idempotency key so that a retry doesn't repeat the write.

A key without a response belongs to a request that is still running or that was interrupted when the
console stopped. The result is unknown, so the request isn't run again.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from django.db import IntegrityError, transaction
from django.http import HttpResponse

from console.api.models import KeptAnswer
from console.observe.history.tiers import DAY_MS

if TYPE_CHECKING:
    from django.http import HttpRequest

    from console.api.models import ApiToken

HEADER = "Idempotency-Key"
REPEATED = "Idempotency-Replayed"
KEPT_MS = DAY_MS
KEYS_MAX = 1_000
"""Per token."""
BYTES_MAX = 1 << 20


def digest_of(request: HttpRequest) -> str:
    """Return the digest of a request's method, path and body."""
    asked = f"{request.method} {request.get_full_path()}\0".encode() + request.body
    return hashlib.sha256(asked).hexdigest()


def claim(token: ApiToken, key: str, digest: str, now_ms: int) -> tuple[KeptAnswer, bool]:
    """Return the row of a key and whether it is new, in which case the caller runs the request."""
    KeptAnswer.objects.filter(made_ms__lte=now_ms - KEPT_MS).delete()
    try:
        with transaction.atomic():
            made = KeptAnswer.objects.create(token=token, key=key, digest=digest, made_ms=now_ms)
    except IntegrityError:
        return KeptAnswer.objects.get(token=token, key=key), False
    newest = KeptAnswer.objects.filter(token=token).order_by("-made_ms", "-pk")
    beyond = list(newest.values_list("pk", flat=True)[KEYS_MAX:])
    KeptAnswer.objects.filter(pk__in=beyond).delete()
    return made, True


def keep(row: KeptAnswer, response: HttpResponse, *, has_body: bool = True) -> None:
    """Store a response, or only its status if it's too large or `has_body` is false."""
    is_small = len(response.content) <= BYTES_MAX
    body = response.content if has_body and is_small else b""
    KeptAnswer.objects.filter(pk=row.pk).update(
        status=response.status_code,
        content_type=response.get("Content-Type", "")[:100],
        body=body,
    )


def stored_response(row: KeptAnswer) -> HttpResponse:
    """Return a stored response again."""
    response = HttpResponse(bytes(row.body), status=row.status, content_type=row.content_type)
    response[REPEATED] = "true"
    return response
