"""Access to this process's gateway."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, cast

from django.conf import settings
from django.utils.module_loading import import_string

from console.gateway.guarding import guarded

if TYPE_CHECKING:
    from collections.abc import Callable

    from console.gateway.ports import Gateway


@lru_cache(maxsize=1)
def gateway() -> Gateway:
    """Return the shared gateway, built by the factory in the settings and wrapped in the guard."""
    factory = cast("Callable[[], Gateway]", import_string(settings.TREBUCHET_GATEWAY))
    return guarded(factory())
