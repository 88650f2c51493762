"""Java for Spark, installed if missing and allowed; and the choice of the lake's engine.

Spark writes the lake if Java and at least MEMORY_KIB_MIN of memory are available, otherwise the
Arrow writer. TREBUCHET_PIPELINE_ENGINE overrides this; Spark without Java is rejected.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from analytics.java import JAVA_VERSION_MIN, PACKAGE, JavaMissingError, require_java
from deploy.machine import system_packages
from deploy.machine.data_directory import NotStartedError
from deploy.settings import variables
from deploy.terminal.output import say
from deploy.terminal.translation import translated

if TYPE_CHECKING:
    from collections.abc import Mapping

ENGINE_VARIABLE = "TREBUCHET_PIPELINE_ENGINE"
SPARK, ARROW = "spark", "arrow"
# A machine with 4 GB reports this much, because the kernel reserves some.
MEMORY_KIB_MIN = 3_500_000
CGROUP_LIMIT = Path("/sys/fs/cgroup/memory.max")
MEMORY = Path("/proc/meminfo")


def missing() -> str | None:
    """Return None if Java is usable or isn't needed, otherwise the reason.

    The reason is the end of a sentence. A Spark Connect server has its own Java.
    """
    if variables.is_connect_server(os.environ):
        return None
    try:
        require_java()
    except JavaMissingError as error:
        return error.reason
    return None


def install() -> None:
    """Install Java 17 or later if it is missing and allowed."""
    if missing() is None or "JAVA_HOME" in os.environ:
        return
    if system_packages.may_install():
        system_packages.install(PACKAGE)


def engine(environment: Mapping[str, str], reason: str | None) -> str:
    """Return the lake's engine; `reason` is the result of `missing`.

    Prints what Spark lacks, and the consequence.

    Raises:
        NotStartedError: the environment selects Spark, which lacks Java, or an unknown engine.
    """
    asked = environment.get(ENGINE_VARIABLE, "").strip().lower()
    if asked not in ("", SPARK, ARROW):
        raise NotStartedError(
            translated(
                "{variable} is {value!r}; it must be spark or arrow.",
                variable=ENGINE_VARIABLE,
                value=asked,
            )
        )
    java = {"version": JAVA_VERSION_MIN, "command": system_packages.command_for(PACKAGE)}
    if asked == SPARK and reason is not None:
        raise NotStartedError(
            translated(
                "{variable} is spark, but {reason}. Install Java {version} or newer "
                "({command}), or remove the setting so that the Arrow writer maintains the "
                "lake.",
                variable=ENGINE_VARIABLE,
                reason=reason,
                **java,
            )
        )
    memory_kib = memory()
    if reason is not None:
        say(
            translated(
                "{reason}, so reports can't run, and the Arrow writer maintains the lake instead "
                "of Spark. To use Spark, install Java {version} or newer ({command}) and "
                "start again.",
                reason=f"{reason[0].upper()}{reason[1:]}",
                **java,
            )
        )
    elif not asked and memory_kib < MEMORY_KIB_MIN:
        say(
            translated(
                "This machine has only {gib:.1f} GiB of memory, so the Arrow writer maintains "
                "the lake, and Spark starts only for reports. To use Spark for both, set "
                "{variable}=spark.",
                gib=memory_kib / 1024**2,
                variable=ENGINE_VARIABLE,
            )
        )
    has_all = reason is None and memory_kib >= MEMORY_KIB_MIN
    return asked or (SPARK if has_all else ARROW)


def memory() -> int:
    """Return how many KiB of memory processes may use here."""
    line = next(line for line in MEMORY.read_text().splitlines() if line.startswith("MemTotal:"))
    found = int(line.split()[1])
    try:
        limit = CGROUP_LIMIT.read_text().strip()
    except OSError:
        return found
    return min(found, int(limit) // 1024) if limit.isdigit() else found
