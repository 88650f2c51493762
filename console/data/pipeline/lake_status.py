"""The lake's status for the page, from `manage.py lake status`."""

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
# The pipeline runs every half minute, and reads a batch in less time than this.
SILENT_MS = 10 * 60 * 1000


@dataclass(frozen=True, slots=True)
class LakeStatus:
    """The state of the lake, or why it is unknown."""

    problem: str = ""
    found: dict[str, Any] = field(default_factory=dict)


def environment() -> dict[str, str]:
    """Return the environment of the lake's program, with the console's paths."""
    return {
        **os.environ,
        "PYTHONPATH": str(settings.BASE_DIR),
        "TREBUCHET_DATA": str(settings.TREBUCHET_DATA),
        "TREBUCHET_STORE": str(settings.TREBUCHET_STORE),
        "TREBUCHET_COMMIT_LOG": settings.TREBUCHET_COMMIT_LOG,
        "TREBUCHET_LAKE_PROGRAM": PROGRAM,
    }


def status() -> LakeStatus:
    """Return the state of the lake, at most KEPT_S old; takes about a second."""
    key = f"lake-status-{hash((settings.TREBUCHET_LAKE, settings.TREBUCHET_STORE))}"
    known: LakeStatus | None = cache.get(key)
    if known is None:
        known = _query_status()
        cache.set(key, known, KEPT_S)
    return known


def _query_status() -> LakeStatus:
    command = [sys.executable, "-m", "analytics.lake", "status", "--json"]
    try:
        completed = subprocess.run(
            [*command, "--lake", settings.TREBUCHET_LAKE],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=SECONDS_MAX,
            cwd=Path(settings.BASE_DIR),
            env=without_secrets(environment()),
            text=True,
        )
    except (OSError, subprocess.TimeoutExpired):
        return LakeStatus(_("The lake program isn't responding."))
    try:
        found = json.loads(completed.stdout)
    except ValueError:
        # The last line is a sentence that begins with the program's name.
        last = (completed.stderr.strip().splitlines() or [""])[-1].removeprefix(f"{PROGRAM}: ")
        return LakeStatus(last or _("The lake program isn't responding."))
    return LakeStatus("", found)
