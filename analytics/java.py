"""Find the Java runtime that Spark needs; reports, the console and deploy all use this check.

    python -m analytics.java

exits with code 0 if a usable Java exists. Otherwise it prints the problem as one line of JSON (see
analytics.reports.describe) and exits with 1.

Standard library only: deploy runs this before there is a virtual environment.

Source: Spark 4.x needs Java 17 or later; bin/spark-class uses $JAVA_HOME/bin/java if JAVA_HOME is
set, otherwise the `java` on PATH. This module follows the same rule, so it checks the Java that
Spark will run.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from analytics.errors import ReportError

if TYPE_CHECKING:
    from collections.abc import Mapping

JAVA_VERSION_MIN = 17
PACKAGE = "openjdk-17-jre-headless"
INSTALL_COMMAND = f"apt-get install {PACKAGE}"
JAVA_HOME_RULE = "set JAVA_HOME to the directory that holds bin/java"
VERSION_TIMEOUT_SECONDS = 30
# "1.8.0_392" is Java 8; "17.0.15" is Java 17.
_VERSION = re.compile(r'version "(?:1\.)?(\d+)')


class JavaMissingError(ReportError):
    """No usable Java was found; `reason` says why, as the end of a sentence."""

    def __init__(self, reason: str) -> None:
        super().__init__(
            f"Reports need Java {JAVA_VERSION_MIN} or later, and {reason}: "
            f"install it with `{INSTALL_COMMAND}`, or {JAVA_HOME_RULE}."
        )
        self.reason = reason


def require_java(environment: Mapping[str, str] | None = None) -> Path:
    """Return the `java` that Spark will start.

    Raises:
        JavaMissingError: Java is missing, doesn't run, or is older than Java 17.
    """
    java = _find(os.environ if environment is None else environment)
    try:
        answer = subprocess.run(
            [str(java), "-version"],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=VERSION_TIMEOUT_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise JavaMissingError(f"{java} can't be run") from error
    found = _VERSION.search(answer.stderr + answer.stdout)
    if answer.returncode or found is None:
        raise JavaMissingError(f"{java} doesn't report its version")
    if int(found.group(1)) < JAVA_VERSION_MIN:
        raise JavaMissingError(f"{java} is Java {found.group(1)}")
    return java


def _find(environment: Mapping[str, str]) -> Path:
    home = environment.get("JAVA_HOME", "").strip()
    if home:
        java = Path(home) / "bin" / "java"
        if not os.access(java, os.X_OK):
            raise JavaMissingError(f"JAVA_HOME is {home}, which has no bin/java")
        return java
    on_path = shutil.which("java", path=environment.get("PATH", os.defpath))
    if on_path is None:
        raise JavaMissingError("java isn't on PATH")
    return Path(on_path)


def main() -> int:
    if os.environ.get("TREBUCHET_SPARK_MASTER", "").startswith("sc://"):
        return 0  # a Spark Connect server runs its own Java
    try:
        require_java()
    except JavaMissingError as missing:
        problem = {
            "sentence": f"Reports need Java {JAVA_VERSION_MIN} or later, and {missing.reason}.",
            "remedy": f"Install it, or {JAVA_HOME_RULE}:",
            "command": INSTALL_COMMAND,
        }
        sys.stdout.write(json.dumps(problem) + "\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
