r"""The text form of a message's properties.

    key \x01 value \x02 key \x01 value

Source: common/message/MessageDecoder.java messageProperties2String and its inverse (4.9.8).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

NAME_VALUE_SEPARATOR = "\x01"
PROPERTY_SEPARATOR = "\x02"
PROPERTIES_BYTES_MAX = 32767


def decode(text: str) -> dict[str, str]:
    """Return the properties; fragments without a key or a value are dropped, as in RocketMQ.

    The last value counts when a key occurs twice.
    """
    properties = {}
    for pair in text.split(PROPERTY_SEPARATOR):
        key, _, value = pair.partition(NAME_VALUE_SEPARATOR)
        if key and value:
            properties[key] = value
    return properties


def encode(properties: Mapping[str, str]) -> str:
    r"""Return the text form, without a \x02 at its end. Neither side may hold \x01 or \x02."""
    return PROPERTY_SEPARATOR.join(
        [f"{key}{NAME_VALUE_SEPARATOR}{value}" for key, value in properties.items()]
    )


def without(text: str, name: str, value: str) -> str:
    r"""Return the text without the pairs of this name and value, ending in \x02."""
    if text[-1] != PROPERTY_SEPARATOR:
        text += PROPERTY_SEPARATOR
    pair = f"{name}{NAME_VALUE_SEPARATOR}{value}{PROPERTY_SEPARATOR}"
    text = text.removeprefix(pair).replace(PROPERTY_SEPARATOR + pair, PROPERTY_SEPARATOR)
    if pair in text:
        # Of pairs side by side, which share a separator, every second one is left.
        pairs = text.split(PROPERTY_SEPARATOR)
        text = PROPERTY_SEPARATOR.join([each for each in pairs if each != pair[:-1]])
    return text
