"""The demo's button, for pages that have nothing to show yet."""

from __future__ import annotations

from typing import Any

from django import template

from console.demo.process import demo_process

register = template.Library()


@register.inclusion_tag("demo/button.html", takes_context=True)
def demo_button(context: dict[str, Any]) -> dict[str, Any]:
    """Render the start or stop button; both return to this page."""
    request = context.get("request")
    return {
        "demo": demo_process.state(),
        "csrf_token": context.get("csrf_token"),
        "next": request.get_full_path() if request is not None else "",
    }
