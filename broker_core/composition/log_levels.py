"""Log levels: applies logLevel and logLevel.PACKAGE."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from broker_core.config.configuration import Configuration


def apply_log_levels(configuration: Configuration) -> None:
    """Set each package's log level from the configuration."""
    logging.getLogger().setLevel(configuration.broker.log_level)
    for package, level in configuration.log_levels.items():
        logging.getLogger(package).setLevel(level)
