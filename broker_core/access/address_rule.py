"""AddressRule: the addresses that a line of a white list matches.

    (empty line)             no address
    *  *.*.*.*               every address, IPv4 and IPv6; also *:*:*:*:*:*:*:* 10.1.2.3  ::1 one
    address 10.1.2.3,10.1.2.4        several 10.1.2.{3,4}  1::{3,4}   several that differ in their
    last part 10.1.2.*  10.1.*.*       any value of a part and all parts after it; IPv6: only the
    last part 10.1.2.1-9  10.1.4-8.*   a range of a part's values; IPv6: in the last two parts,
    hexadecimal

Source: acl/plain/RemoteAddressStrategyFactory.java (4.9.7).
"""

from __future__ import annotations

import functools
import ipaddress
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    AddressRule = Callable[[tuple[int, ...]], bool]

ADDRESSES_KEPT = 4096
EVERYONE = ("*", "*.*.*.*", "*:*:*:*:*:*:*:*")
V4_PARTS, V6_PARTS = 4, 8
_RANGE = re.compile(r"([0-9A-Fa-f]{1,4})-([0-9A-Fa-f]{1,4})")


@functools.lru_cache(ADDRESSES_KEPT)
def parts_of(address: str) -> tuple[int, ...]:
    """Return the four or eight numbers of an address; () if the text isn't an address."""
    try:
        parsed = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return ()
    packed = parsed.packed
    if parsed.version == 4:
        return tuple(packed)
    return tuple(packed[i] << 8 | packed[i + 1] for i in range(0, len(packed), 2))


def parse_rule(text: str | None) -> AddressRule:
    """Return the rule of a line.

    Raises:
        ValueError: the line isn't valid.
    """
    line = (text or "").strip()
    if not line:
        return lambda _: False
    if line in EVERYONE:
        return lambda _: True
    if line.endswith("}"):
        head, _, last = line[:-1].partition("{")
        if head[-1:] not in (".", ":"):
            raise ValueError(f"{line!r} is not a list of addresses such as 10.1.2.{{3,4}}")
        return _any_of(line, [head + each.strip() for each in last.split(",") if each.strip()])
    if "," in line:
        return _any_of(line, [each.strip() for each in line.split(",") if each.strip()])
    if "*" in line or "-" in line:
        return _v6_range(line) if ":" in line else _v4_range(line)
    return _any_of(line, [line])


def _any_of(line: str, addresses: list[str]) -> AddressRule:
    wanted = {parts_of(address) for address in addresses}
    if not wanted or () in wanted:
        raise ValueError(f"{line!r} is not an address or a list of addresses")
    return lambda parts: parts in wanted


def _v4_range(line: str) -> AddressRule:
    texts = [text.strip() for text in line.split(".")]
    # The first part that is a range decides; the parts after it are ignored, as in RocketMQ.
    index = next((i for i, text in enumerate(texts) if "*" in text or "-" in text), 0)
    if len(texts) != V4_PARTS or index == 0:
        raise ValueError(f"{line!r} is not a range of addresses such as 10.1.2.* or 10.1.2.1-9")
    low, high = _bounds(line, texts[index], 10, 255)
    head = tuple(_number(line, text, 10, 255) for text in texts[:index])
    return _range_rule(head, low, high, V4_PARTS)


def _v6_range(line: str) -> AddressRule:
    head_text, _, last = line.rpartition(":")
    is_any_last = last == "*" and "-" in head_text
    if is_any_last:
        head_text, _, last = head_text.rpartition(":")
    index = V6_PARTS - 2 if is_any_last else V6_PARTS - 1
    if "*" in head_text or "-" in head_text:
        raise ValueError(f"{line!r} is not a range of addresses: only the last parts may vary")
    low, high = _bounds(line, last, 16, 0xFFFF)
    # Zeros in place of the range make the head a parsable address.
    whole = parts_of(head_text + ":0" * (V6_PARTS - index))
    if len(whole) != V6_PARTS:
        raise ValueError(f"{line!r} is not a range of IPv6 addresses")
    return _range_rule(whole[:index], low, high, V6_PARTS)


def _range_rule(head: tuple[int, ...], low: int, high: int, length: int) -> AddressRule:
    index = len(head)

    def rule(parts: tuple[int, ...]) -> bool:
        return len(parts) == length and parts[:index] == head and low <= parts[index] <= high

    return rule


def _bounds(line: str, text: str, base: int, most: int) -> tuple[int, int]:
    if text == "*":
        return 0, most
    match = _RANGE.fullmatch(text)
    if match is None:
        raise ValueError(f"{line!r}: {text!r} is neither * nor a range such as 1-9")
    low, high = _number(line, match[1], base, most), _number(line, match[2], base, most)
    if low > high:
        raise ValueError(f"{line!r}: {low} is above {high}")
    return low, high


def _number(line: str, text: str, base: int, most: int) -> int:
    try:
        number = int(text, base)
    except ValueError:
        number = -1
    if not 0 <= number <= most:
        raise ValueError(f"{line!r}: {text!r} is not a number from 0 to {most}")
    return number
