"""Update: changes keys while the broker runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from broker_core.config.keys import KEYS, LIVE_KEYS, NAMESRV_KEYS
from broker_core.config.log_levels import LOG_LEVEL_OPTION, check_log_level
from broker_core.config.values import parse_value
from broker_core.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from broker_core.config.configuration import Configuration
    from broker_core.config.namesrv import NamesrvConfig


def is_live(key: str) -> bool:
    """Return whether a key may change while the broker runs."""
    return (key in LIVE_KEYS and key not in NAMESRV_KEYS) or key.startswith(LOG_LEVEL_OPTION)


def update_namesrv(config: NamesrvConfig, table: Mapping[str, str]) -> list[str]:
    """Change keys of a running name server: like `update`, for NAMESRV_KEYS.

    Raises:
        ConfigError: as in update.
    """
    values = {}
    for name, text in table.items():
        if name not in NAMESRV_KEYS:
            raise ConfigError(name, text, "")
        values[name] = _parse(name, text)
    return sorted(name for name, value in values.items() if _put(config, name, value))


def update(configuration: Configuration, table: Mapping[str, str]) -> list[str]:
    """Change all or no keys of a running broker; return the keys whose values changed.

    Only this function writes to these frozen objects: code that reads a key on each use sees the
    change.

    Raises:
        ConfigError: a key may not change (then `expected` is empty), or a value is bad.
    """
    values = {key: _checked(key, text) for key, text in table.items()}
    sections = {type(section): section for section in configuration.sections()}
    changed = []
    for name, value in values.items():
        if name.startswith(LOG_LEVEL_OPTION):
            package = name.removeprefix(LOG_LEVEL_OPTION)
            if configuration.log_levels.get(package) != value:
                configuration.log_levels[package] = value
                changed.append(name)
            continue
        if _put(sections[KEYS[name].section], name, value):
            changed.append(name)
    return sorted(changed)


def _put(section: object, name: str, value: object) -> bool:
    """Store a key's value; return whether it was different."""
    attribute = KEYS[name].attribute
    if getattr(section, attribute) == value:
        return False
    object.__setattr__(section, attribute, value)
    return True


def _checked(name: str, text: str) -> Any:
    if not is_live(name):
        raise ConfigError(name, text, "")
    if not name.startswith(LOG_LEVEL_OPTION):
        return _parse(name, text)
    try:
        check_log_level(name.removeprefix(LOG_LEVEL_OPTION), text)
    except ValueError as error:
        raise ConfigError(name, text, str(error)) from error
    return text


def _parse(name: str, text: str) -> Any:
    try:
        return parse_value(KEYS[name], text)
    except ValueError as error:
        raise ConfigError(name, text, str(error)) from error
