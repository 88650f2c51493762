"""Marks, and the tokens with which programs set them."""

from __future__ import annotations

from django.db import models

TEXT_CHARACTERS_MAX = 200
NAME_CHARACTERS_MAX = 80
ACTOR_CHARACTERS_MAX = 150
MARKS_MAX, TOKENS_MAX = 10_000, 20


class Token(models.Model):
    """Lets a program set marks and nothing else. Only its digest is stored."""

    name = models.CharField(max_length=NAME_CHARACTERS_MAX, unique=True)
    digest = models.CharField(max_length=64, unique=True)
    by = models.CharField(max_length=ACTOR_CHARACTERS_MAX)
    made_ms = models.BigIntegerField()
    used_ms = models.BigIntegerField(null=True)

    class Meta:
        ordering = ["name"]

    def __str__(self) -> str:
        return self.name


class Mark(models.Model):
    """An event outside the brokers, shown at its time on every chart."""

    at_ms = models.BigIntegerField(db_index=True)
    text = models.CharField(max_length=TEXT_CHARACTERS_MAX)
    by = models.CharField(max_length=ACTOR_CHARACTERS_MAX)
    made_ms = models.BigIntegerField()
    # None: a person set it, or the token has been deleted.
    token = models.ForeignKey(Token, null=True, on_delete=models.SET_NULL, related_name="marks")

    class Meta:
        ordering = ["-at_ms", "-id"]

    def __str__(self) -> str:
        return self.text
