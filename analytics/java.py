"""The Java runtime that Spark needs.

Source: Spark 4.x wants Java 17 or later; bin/spark-class takes $JAVA_HOME/bin/java when JAVA_HOME
is set, otherwise the `java` of PATH. The same rule is followed here, so that what was checked is
what runs.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

from analytics.errors import ReportError

if TYPE_CHECKING:
    from collections.abc import Mapping

JAVA_VERSION_MIN = 17
INSTALL_COMMAND = "apt-get install openjdk-17-jre-headless"
JAVA_HOME_RULE = "set JAVA_HOME to the directory that holds bin/java"
VERSION_TIMEOUT_SECONDS = 30
_VERSION = re.compile(r'version "(?:1\.)?(\d+)')


def require_java(environment: Mapping[str, str] | None = None) -> Path:
    """Return the `java` that Spark will start.

    Raises:
        ReportError: there is none, it does not run, or it is older than Java 17.
    """
    environment = os.environ if environment is None else environment
    java = _find(environment)
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
        raise ReportError(
            f"Reports need Java {JAVA_VERSION_MIN} or later and {java} does not run: "
            f"install it with `{INSTALL_COMMAND}`, or {JAVA_HOME_RULE}."
        ) from error
    found = _VERSION.search(answer.stderr + answer.stdout)
    if found is None or int(found.group(1)) < JAVA_VERSION_MIN:
        version = found.group(1) if found else "of an unknown version"
        raise ReportError(
            f"Reports need Java {JAVA_VERSION_MIN} or later and {java} is Java {version}: "
            f"install a newer one with `{INSTALL_COMMAND}`, or {JAVA_HOME_RULE}."
        )
    return java


def _find(environment: Mapping[str, str]) -> Path:
    home = environment.get("JAVA_HOME", "")
    if home:
        java = Path(home) / "bin" / "java"
        if not os.access(java, os.X_OK):
            raise ReportError(
                f"Reports need Java {JAVA_VERSION_MIN} or later and JAVA_HOME is {home}, which "
                f"has no bin/java: {JAVA_HOME_RULE}, or unset it and run `{INSTALL_COMMAND}`."
            )
        return java
    on_path = shutil.which("java", path=environment.get("PATH", os.defpath))
    if on_path is None:
        raise ReportError(
            f"Reports need Java {JAVA_VERSION_MIN} or later and none was found: "
            f"install it with `{INSTALL_COMMAND}`, or {JAVA_HOME_RULE}."
        )
    return Path(on_path)
