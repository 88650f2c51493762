"""What the lake's own program says of the lake: `manage.py lake status`, for the page."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.cache import cache
from django.utils.translation import gettext as _

from broker_core.environment import without_secrets

PROGRAM = "manage.py lake"
SECONDS_MAX = 30
KEPT_S = 5
# The lake's process looks at the log every ten seconds, and reads a batch in less than this.
SILENT_MS = 10 * 60 * 1000


@dataclass(frozen=True, slots=True)
class LakeStatus:
    """The state of the lake, or why it is not known."""

    problem: str = ""
    found: dict[str, Any] = field(default_factory=dict)


def environment() -> dict[str, str]:
    """Return what the lake's program is told: where everything of ours is."""
    return {
        **os.environ,
        "PYTHONPATH": str(settings.BASE_DIR),
        "TREBUCHET_DATA": str(settings.TREBUCHET_DATA),
        "TREBUCHET_STORE": str(settings.TREBUCHET_STORE),
        "TREBUCHET_COMMIT_LOG": settings.TREBUCHET_COMMIT_LOG,
        "TREBUCHET_LAKE_PROGRAM": PROGRAM,
    }


def status() -> LakeStatus:
    """Return the state of the lake, not older than KEPT_S; it takes about a second."""
    key = f"lake-status-{hash((settings.TREBUCHET_LAKE, settings.TREBUCHET_STORE))}"
    known: LakeStatus | None = cache.get(key)
    if known is None:
        known = _asked()
        cache.set(key, known, KEPT_S)
    return known


def _asked() -> LakeStatus:
    command = [sys.executable, "-m", "analytics.lake", "status", "--json"]
    try:
        said = subprocess.run(
            [*command, "--lake", settings.TREBUCHET_LAKE],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=SECONDS_MAX,
            cwd=Path(settings.BASE_DIR),
            env=without_secrets(environment()),
            text=True,
        )
    except (OSError, subprocess.TimeoutExpired):
        return LakeStatus(_("The lake's program does not answer."))
    try:
        found = json.loads(said.stdout)
    except ValueError:
        # Its last line is a sentence that begins with its name.
        last = (said.stderr.strip().splitlines() or [""])[-1].removeprefix(f"{PROGRAM}: ")
        return LakeStatus(last or _("The lake's program does not answer."))
    return LakeStatus("", found)
