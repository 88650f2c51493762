"""The catalog of reports: what each answers, how its program is called, what it needs."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from django.conf import settings
from django.core.cache import cache
from django.utils import timezone

if TYPE_CHECKING:
    from collections.abc import Mapping

JAVA_FOUND_FOR_S = 300
JAVA_MISSING_FOR_S = 10
JAVA_FEATURE_MIN = 17
MS_AN_HOUR = 3_600_000
HOURS_MAX = 24 * 366
INSTALL_JAVA = "apt-get install -y openjdk-17-jre-headless"


@dataclass(frozen=True, slots=True)
class Report:
    """One entry: `name` is what the analytics program calls it."""

    name: str
    title: str
    question: str


REPORTS: dict[str, Report] = {
    "traffic": Report(
        name="traffic",
        title="Traffic by topic and minute",
        question="How many messages, and how many bytes, did each topic store in each minute?",
    ),
}


def command(report: str, parameters: Mapping[str, Any], out: Path) -> list[str]:
    """Return the command line of a run; `hours` counts back from now, to a whole minute."""
    base = getattr(settings, "TREBUCHET_ANALYTICS_COMMAND", None)
    words = list(base) if base else [sys.executable, "-m", "analytics"]
    words += [REPORTS[report].name, "--store", str(settings.TREBUCHET_STORE), "--out", str(out)]
    if hours := parameters.get("hours"):
        now_ms = int(timezone.now().timestamp() * 1000)
        from_ms = (now_ms - int(hours) * MS_AN_HOUR) // 60_000 * 60_000
        words += ["--from", str(from_ms)]
    if topic := parameters.get("topic"):
        words += ["--topic", str(topic)]
    return words


def missing_java() -> str | None:
    """Return None when Java 17 or later is there, else the sentence that says how to get it."""
    if getattr(settings, "TREBUCHET_ANALYTICS_COMMAND", None):
        return None
    known = cache.get("reports.java")
    if known is None:
        known = look_for_java()
        cache.set("reports.java", known, JAVA_MISSING_FOR_S if known else JAVA_FOUND_FOR_S)
    return known or None


def look_for_java() -> str:
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home, "bin", "java")) if home else shutil.which("java")
    if java is None or not Path(java).is_file():
        return f"Java is not installed; reports need version 17 or later: {INSTALL_JAVA}"
    try:
        answer = subprocess.run([java, "-version"], capture_output=True, timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return f"{java} does not answer; reports need Java 17 or later: {INSTALL_JAVA}"
    version = re.search(rb'version "(\d+)(?:\.(\d+))?', answer.stderr + answer.stdout)
    if version is None:
        return f"{java} does not tell its version; reports need Java 17 or later: {INSTALL_JAVA}"
    # Java 8 calls itself 1.8.
    feature = int(version[1]) if version[1] != b"1" else int(version[2] or 0)
    if feature < JAVA_FEATURE_MIN:
        return f"{java} is version {feature}; reports need 17 or later: {INSTALL_JAVA}"
    return ""
