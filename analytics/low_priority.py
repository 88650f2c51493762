"""Low priority for Spark: on the broker's machine, a report runs on idle processor time.

The process runs only when no other process needs the processor (SCHED_IDLE), and only on the last
processors: on one if there are up to seven, otherwise on a quarter of them. The JVM and the Python
workers inherit both, and Java counts the processors it may use, so `local[*]` is `local[1]` on a
small machine. The JVM compiles and collects garbage with one thread each (`JAVA_OPTIONS`).

Where Linux groups tasks by session (`sched_autogroup_enabled`), policies and nice values only count
within a session, so the session gets the lowest priority as well.

TREBUCHET_SPARK_GUEST=false turns this off on a machine that runs nothing else.
"""

from __future__ import annotations

import contextlib
import logging
import os
from pathlib import Path
from typing import TYPE_CHECKING

from analytics.errors import ReportError

if TYPE_CHECKING:
    from collections.abc import Mapping

logger = logging.getLogger(__name__)

VARIABLE = "TREBUCHET_SPARK_GUEST"
PROCESSORS_A_SHARE = 4
# The lowest ordinary priority, used if the system refuses SCHED_IDLE.
NICENESS = 19
# A small young generation: Java grows it to a third of its heap before it collects.
JAVA_OPTIONS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xmn96m"
AUTOGROUP = Path("/proc/self/autogroup")
_WORDS = {"": True, "true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}


def is_low_priority(environment: Mapping[str, str] | None = None) -> bool:
    """Return whether Spark runs at low priority, which is the default.

    Raises:
        ReportError: the variable is neither true nor false.
    """
    given = (os.environ if environment is None else environment).get(VARIABLE, "").strip()
    if given.lower() not in _WORDS:
        raise ReportError(f"{VARIABLE} is {given!r}; it must be true or false.")
    return _WORDS[given.lower()]


def lower_priority() -> None:
    """Lower the priority of this thread and of everything it starts from now on."""
    usable = sorted(os.sched_getaffinity(0))
    ours = usable[-max(1, len(usable) // PROCESSORS_A_SHARE) :]
    try:
        os.sched_setaffinity(0, ours)
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    except OSError as error:
        logger.warning(
            "idle priority refused, using nice nice=%d error=%s", NICENESS, error.strerror
        )
        os.nice(NICENESS)
    lower_session(NICENESS)


def lower_session(niceness: int) -> None:
    """Set the nice value of the session where Linux schedules by session.

    Does nothing if another process, such as a shell, leads the session: the rest of it would slow
    down, too.
    """
    if os.getsid(0) == os.getpid():
        with contextlib.suppress(OSError):
            AUTOGROUP.write_text(str(niceness))
