"""API tokens, and stored responses to writes with an idempotency key."""

from __future__ import annotations

from django.conf import settings
from django.db import models

NAME_CHARACTERS_MAX = 80
KEY_CHARACTERS_MAX = 128


class ApiToken(models.Model):
    """Grants a program the token's scopes, within its owner's rights. Only a digest is stored."""

    owner = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="api_tokens"
    )
    name = models.CharField(max_length=NAME_CHARACTERS_MAX)
    digest = models.CharField(max_length=64, unique=True)
    # The first characters, so that people can tell tokens apart.
    beginning = models.CharField(max_length=12)
    scopes: models.JSONField[list[str], list[str]] = models.JSONField(default=list)
    made_ms = models.BigIntegerField()
    expires_ms = models.BigIntegerField()
    used_ms = models.BigIntegerField(null=True)
    used_from = models.CharField(max_length=64, blank=True)

    class Meta:
        ordering = ["owner", "name"]
        constraints = [
            models.UniqueConstraint(fields=["owner", "name"], name="api_token_name_of_owner")
        ]

    def __str__(self) -> str:
        return self.name


class KeptAnswer(models.Model):
    """The response to a write with an idempotency key; `status` is None until it arrives."""

    token = models.ForeignKey(ApiToken, on_delete=models.CASCADE, related_name="answers")
    key = models.CharField(max_length=KEY_CHARACTERS_MAX)
    # Digest of the request: reusing a key for a different request is an error.
    digest = models.CharField(max_length=64)
    made_ms = models.BigIntegerField(db_index=True)
    status = models.PositiveSmallIntegerField(null=True)
    content_type = models.CharField(max_length=100, blank=True)
    body: models.BinaryField[bytes, bytes] = models.BinaryField(default=b"")

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["token", "key"], name="api_answer_key_of_token")
        ]

    def __str__(self) -> str:
        return self.key
