"""Messages about unknown keys."""

from __future__ import annotations

from broker_core.config.configuration import EXTENSION_OPTION
from broker_core.config.keys import ALIASES, KEYS
from broker_core.config.keys_of_5 import KEYS_OF_5
from broker_core.config.log_levels import LOG_LEVEL_OPTION
from broker_core.config.spelling import did_you_mean
from broker_core.config.unsupported_keys import JAVA_CLASSES, ONE_VALUE, WITHOUT_EFFECT

KEY_CHARACTERS_SHOWN = 100
KNOWN = frozenset({*KEYS, *WITHOUT_EFFECT, *ONE_VALUE, *JAVA_CLASSES, *ALIASES})


def is_known(key: str) -> bool:
    """Return whether a configuration key is read, or accepted without effect."""
    return key in KNOWN or key.startswith((EXTENSION_OPTION, LOG_LEVEL_OPTION))


def unknown_key(key: str, consequence: str = "") -> str:
    """Return a sentence about an unknown key, with the most similar known key.

    `consequence` continues it, such as " is ignored".
    """
    if key in KEYS_OF_5:
        return f"{key!r} is a key of RocketMQ 5.x that has no effect here"
    key = key[:KEY_CHARACTERS_SHOWN]
    hint = did_you_mean(key, [*KNOWN, *KEYS_OF_5])
    return f"unknown configuration key {key!r}{consequence}{hint}"
