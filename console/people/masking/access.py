"""Masking for the current person: masked by default, unmasked on request."""

from __future__ import annotations

from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING

from console.accounts.actions import Action
from console.people.masking.engine import mask
from console.people.masking.models import MaskingRule

if TYPE_CHECKING:
    from collections.abc import Iterator

    from console.accounts.rights import Rights
    from console.lib.stored import StoredMessage

revealing: ContextVar[bool] = ContextVar("revealing", default=False)


def every_rule() -> list[MaskingRule]:
    return list(MaskingRule.objects.all())


def as_masked(message: StoredMessage, rights: Rights, rules: list[MaskingRule]) -> StoredMessage:
    """Return a message as the current person sees it."""
    if not rules or (revealing.get() and rights.may(Action.UNMASK, message.topic)):
        return message
    return mask(message, rules)


@contextmanager
def unmasked() -> Iterator[None]:
    """Let the block read unmasked messages, if the person may; audits this first."""
    token = revealing.set(True)
    try:
        yield
    finally:
        revealing.reset(token)
