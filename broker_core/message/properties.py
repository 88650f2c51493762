r"""The text form of a message's properties.

    key \x01 value \x02 key \x01 value

Source: common/message/MessageDecoder.java messageProperties2String and its inverse (4.9.8).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker_core.errors import PropertiesError

if TYPE_CHECKING:
    from collections.abc import Mapping

NAME_VALUE_SEPARATOR = "\x01"
PROPERTY_SEPARATOR = "\x02"
PROPERTIES_BYTES_MAX = 32767
NAME_CHARS_SHOWN = 64
UNSENDABLE = {
    "\0": "U+0000, which the broker can't store",
    NAME_VALUE_SEPARATOR: "U+0001, which separates names from values",
    PROPERTY_SEPARATOR: "U+0002, which separates properties",
}
"""The characters not allowed in names and values, and why."""


def decode(text: str) -> dict[str, str]:
    """Return the properties; fragments without a key or a value are dropped, as in RocketMQ.

    If a key repeats, the last value wins.
    """
    properties = {}
    for pair in text.split(PROPERTY_SEPARATOR):
        key, _, value = pair.partition(NAME_VALUE_SEPARATOR)
        if key and value:
            properties[key] = value
    return properties


def skipped(text: str) -> tuple[tuple[str, str], ...]:
    """Return the pairs that `decode` drops, in stored order: empty values and overwritten ones."""
    pairs = [
        pair.partition(NAME_VALUE_SEPARATOR) for pair in text.split(PROPERTY_SEPARATOR) if pair
    ]
    last = {key: at for at, (key, _, value) in enumerate(pairs) if key and value}
    return tuple((key, value) for at, (key, _, value) in enumerate(pairs) if last.get(key) != at)


def decode_client_properties(text: str) -> dict[str, str]:
    r"""Return the properties of a message from a client.

    Differs: RocketMQ stores any text. If a name or value contains \x01 or \x02, its readers lose
    the property, truncate it or see another property, each in a different way.

    Raises:
        PropertiesError: a property would not be read as it was sent.
    """
    properties = {}
    for pair in text.split(PROPERTY_SEPARATOR):
        key, separator, value = pair.partition(NAME_VALUE_SEPARATOR)
        if key and value and NAME_VALUE_SEPARATOR not in value:
            properties[key] = value
        elif pair and (value or not key or not separator):
            raise _broken_pair(pair)
    return properties


def require_sendable(properties: Mapping[str, str]) -> None:
    """Check that readers will get properties unchanged.

    Raises:
        PropertiesError: a name is empty, or a control character breaks the text form.
    """
    for name, value in properties.items():
        if not name:
            raise PropertiesError("a property has no name")
        for character in UNSENDABLE:
            if character in name or character in value:
                raise _properties_error(name, character)


def require_no_nul(text: str) -> None:
    """Check that the broker can store a properties text.

    Raises:
        PropertiesError: it contains a NUL, by which recovery detects a torn write.
    """
    for pair in text.split(PROPERTY_SEPARATOR) if "\0" in text else ():
        if "\0" in pair:
            raise _properties_error(pair.partition(NAME_VALUE_SEPARATOR)[0], "\0")


def encode(properties: Mapping[str, str]) -> str:
    r"""Return the text form without a trailing \x02. Names and values can't contain \x01, \x02."""
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
        # Adjacent pairs share a separator, so every second one is still there.
        pairs = text.split(PROPERTY_SEPARATOR)
        text = PROPERTY_SEPARATOR.join([each for each in pairs if each != pair[:-1]])
    return text


def _broken_pair(pair: str) -> PropertiesError:
    name, separator, _ = pair.partition(NAME_VALUE_SEPARATOR)
    if not name:
        return PropertiesError("a property has no name")
    if separator:
        return _properties_error(name, NAME_VALUE_SEPARATOR)
    # The text after a separator within a name or value.
    return PropertiesError(
        f"its properties hold {_shown(name)} without a value; a property contains "
        f"{UNSENDABLE[PROPERTY_SEPARATOR]}. Encode the property, then send the message again"
    )


def _properties_error(name: str, character: str) -> PropertiesError:
    return PropertiesError(
        f"the property {_shown(name)} contains {UNSENDABLE[character]}. Encode the property, then "
        "send the message again"
    )


def _shown(name: str) -> str:
    return repr(name[:NAME_CHARS_SHOWN]) + "..." * (len(name) > NAME_CHARS_SHOWN)
