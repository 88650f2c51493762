"""Start and stop the demo traffic, for the buttons and the API."""

from __future__ import annotations

from typing import TYPE_CHECKING

from django.utils.translation import gettext as _

from console.demo.process import DEMO_SECONDS, demo_process
from console.people.audit.record import change

if TYPE_CHECKING:
    from django.http import HttpRequest


def start_demo(request: HttpRequest) -> tuple[bool, str]:
    """Start the demo; return whether it was stopped before, and a sentence for the user."""
    minutes = DEMO_SECONDS // 60
    with change(request, "demo.start", ""):
        is_new = demo_process.start()
    if is_new:
        text = _("Demo traffic is starting. It stops automatically after %(minutes)s minutes.")
        return True, text % {"minutes": minutes}
    return False, _("Demo traffic is already running.")


def stop_demo(request: HttpRequest) -> tuple[bool, str]:
    """Stop the demo; return whether it was running, and a sentence for the user."""
    with change(request, "demo.stop", ""):
        is_ended = demo_process.stop()
    if is_ended:
        return True, _("Demo traffic stopped. Its messages stay in the log.")
    return False, _("Demo traffic wasn't running.")
