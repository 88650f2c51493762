"""Log levels: logLevel and logLevel.PACKAGE, put in force."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from broker_core.config.configuration import Configuration


def apply_log_levels(configuration: Configuration) -> None:
    """Have each package log from the level on that the configuration gives it."""
    logging.getLogger().setLevel(configuration.broker.log_level)
    for package, level in configuration.log_levels.items():
        logging.getLogger(package).setLevel(level)
