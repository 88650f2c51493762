"""The steps of a user with a form that shows a plan first: review it, apply it."""

from __future__ import annotations

import html
import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from django.test import Client


def token_on(response: Any) -> str:
    """Return the plan that a page carries."""
    found = re.search(r'name="token" value="([^"]+)"', response.content.decode())
    assert found
    return html.unescape(found[1])


def applied(client: Client, url: str, data: Mapping[str, Any], **more: Any) -> Any:
    """Send a form, then apply the resulting plan; `more` is sent along."""
    plan = client.post(url, data)
    return client.post(url, {"token": token_on(plan), **more})
