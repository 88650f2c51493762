"""Spark as a guest: on the broker's machine, a report takes only what nobody else wants.

The process is scheduled when no other one wants the processor (SCHED_IDLE), on a few processors
at the end of the list: one of up to seven, a quarter of more. The Java process and the Python
workers inherit both, and Java counts the processors that it may use: `local[*]` is `local[1]` on a
small machine. Java itself compiles and collects with one thread each (`JAVA_OPTIONS`).

Where the machine serves nobody else, TREBUCHET_SPARK_GUEST=false lifts all of this.
"""

from __future__ import annotations

import logging
import os
from typing import TYPE_CHECKING

from analytics.errors import ReportError

if TYPE_CHECKING:
    from collections.abc import Mapping

logger = logging.getLogger(__name__)

VARIABLE = "TREBUCHET_SPARK_GUEST"
PROCESSORS_A_SHARE = 4
# Where the scheduler refuses, the least urgent of the ordinary priorities.
NICENESS = 19
JAVA_OPTIONS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
_WORDS = {"": True, "true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}


def is_guest(environment: Mapping[str, str] | None = None) -> bool:
    """Return whether the environment leaves Spark a guest, which is the default.

    Raises:
        ReportError: the variable says neither true nor false.
    """
    given = (os.environ if environment is None else environment).get(VARIABLE, "").strip()
    if given.lower() not in _WORDS:
        raise ReportError(f"{VARIABLE} is {given!r}; it must be true or false.")
    return _WORDS[given.lower()]


def step_back() -> None:
    """Make this thread, and what it starts from now on, a guest."""
    usable = sorted(os.sched_getaffinity(0))
    ours = usable[-max(1, len(usable) // PROCESSORS_A_SHARE) :]
    try:
        os.sched_setaffinity(0, ours)
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    except OSError as error:
        logger.warning("the scheduler refuses (%s): nice %d instead", error.strerror, NICENESS)
        os.nice(NICENESS)
