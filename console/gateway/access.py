"""The gateway of this process."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, cast

from django.conf import settings
from django.utils.module_loading import import_string

if TYPE_CHECKING:
    from collections.abc import Callable

    from console.gateway.ports import Gateway


@lru_cache(maxsize=1)
def gateway() -> Gateway:
    """Return the one gateway, made by the factory that the settings name."""
    factory = cast("Callable[[], Gateway]", import_string(settings.TREBUCHET_GATEWAY))
    return factory()
