"""Log levels: the key logLevel, and a key logLevel.PACKAGE for each package with its own level.

These are Trebuchet's own keys; RocketMQ configures levels in logback's files.
"""

from __future__ import annotations

import re
from importlib.util import find_spec
from typing import get_args, get_type_hints

from broker_core.config.broker import BrokerConfig

LOG_LEVEL_OPTION = "logLevel."
"""The prefix of a package's own level: logLevel.PACKAGE."""
LEVELS = get_args(get_type_hints(BrokerConfig)["log_level"])
OWN_PACKAGE = "broker_core"

_LOGGER = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*")


def check_log_level(package: str, level: str) -> None:
    """Check the level of a package: in broker_core it must exist, others may be imported later.

    Raises:
        ValueError: a description of valid values.
    """
    if level not in LEVELS:
        raise ValueError(" or ".join(LEVELS))
    if not _LOGGER.fullmatch(package) or not _module_exists(package):
        raise ValueError(
            f"the name of a package or module after {LOG_LEVEL_OPTION}, "
            "such as logLevel.broker_core.store"
        )


def _module_exists(package: str) -> bool:
    if package.partition(".")[0] != OWN_PACKAGE:
        return True
    try:
        return find_spec(package) is not None
    except ModuleNotFoundError:
        return False
