"""The ASGI application: pages over HTTP, live data over WebSockets."""

from __future__ import annotations

import os
from typing import Any

from channels.auth import AuthMiddlewareStack
from channels.routing import ProtocolTypeRouter, URLRouter
from django.conf import settings
from django.core.asgi import get_asgi_application
from django.urls import re_path

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "console.settings")
# Apps must be loaded before the imports below reach their models.
pages = get_asgi_application()

from console.accounts.sessions import CurrentSocketUser, is_cookie_signed_in  # noqa: E402  (needs loaded apps)
from console.api.tokens import is_token_usable  # noqa: E402
from console.error_pages import too_large  # noqa: E402
from console.messages.tracing.lifespan import Lifespan, export_to_collector  # noqa: E402
from console.messages.tracing.routing import bridge, websocket_urlpatterns  # noqa: E402
from console.observe.flow.routing import websocket_urlpatterns as flow_urlpatterns  # noqa: E402
from console.serving.body_limit import BodyLimit  # noqa: E402
from console.serving.origin import SameOrigin  # noqa: E402
from console.serving.sockets import not_found  # noqa: E402


async def is_known(scope: dict[str, Any]) -> bool:
    """Return whether a request is from a signed-in person or a program with a token."""
    return await is_cookie_signed_in(scope) or await is_token_usable(scope)


# Channels routes to ASGI applications, but Django's types only allow views.
elsewhere = re_path("", not_found)  # type: ignore[arg-type]
application = ProtocolTypeRouter(
    {
        "http": BodyLimit(
            pages,
            is_known,
            too_large,
            bytes_max=settings.DATA_UPLOAD_MAX_MEMORY_SIZE,
            bytes_max_below=settings.TREBUCHET_BODY_BYTES_MAX_BELOW,
        ),
        "lifespan": Lifespan(lambda: export_to_collector(bridge)),
        "websocket": AuthMiddlewareStack(
            CurrentSocketUser(
                SameOrigin(URLRouter([*websocket_urlpatterns, *flow_urlpatterns, elsewhere]))
            )
        ),
    }
)
