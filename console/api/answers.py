"""Answers of writes, kept for a day under the key that the program gave: repeated, not done twice.

A key that has no answer belongs to a request that still runs, or that the console did not survive:
nobody knows what became of it, so it is not done again.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from django.db import IntegrityError, transaction
from django.http import HttpResponse

from console.api.models import KeptAnswer
from console.history.tiers import DAY_MS

if TYPE_CHECKING:
    from django.http import HttpRequest

    from console.api.models import ApiToken

HEADER = "Idempotency-Key"
REPEATED = "Idempotency-Replayed"
KEPT_MS = DAY_MS
KEYS_MAX = 1_000
"""Of one token."""
BYTES_MAX = 1 << 20


def digest_of(request: HttpRequest) -> str:
    """Return what tells a request from others: method, address, body."""
    asked = f"{request.method} {request.get_full_path()}\0".encode() + request.body
    return hashlib.sha256(asked).hexdigest()


def claim(token: ApiToken, key: str, digest: str, now_ms: int) -> tuple[KeptAnswer, bool]:
    """Return the row of a key, and whether it is new: then its request is to be done now."""
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
    """Keep an answer; of one that is too large, or told once, only its status."""
    is_small = len(response.content) <= BYTES_MAX
    body = response.content if has_body and is_small else b""
    KeptAnswer.objects.filter(pk=row.pk).update(
        status=response.status_code,
        content_type=response.get("Content-Type", "")[:100],
        body=body,
    )


def repeated(row: KeptAnswer) -> HttpResponse:
    """Return a kept answer once more."""
    response = HttpResponse(bytes(row.body), status=row.status, content_type=row.content_type)
    response[REPEATED] = "true"
    return response
