from __future__ import annotations

import pytest

from broker_core.access.address_rule import parse_rule, parts_of


def matching(line: str | None, *addresses: str) -> list[str]:
    rule = parse_rule(line)
    return [address for address in addresses if rule(parts_of(address))]


@pytest.mark.parametrize("line", [None, "", "  "])
def test_a_blank_line_matches_no_address(line: str | None) -> None:
    assert matching(line, "127.0.0.1", "::1", "") == []


@pytest.mark.parametrize("line", ["*", "*.*.*.*", "*:*:*:*:*:*:*:*"])
def test_stars_alone_match_every_address(line: str) -> None:
    assert matching(line, "127.0.0.1", "::1") == ["127.0.0.1", "::1"]


@pytest.mark.parametrize(
    ("line", "inside", "outside"),
    [
        ("10.1.2.3", ["10.1.2.3"], ["10.1.2.4", "::1"]),
        ("::1", ["::1", "0:0:0:0:0:0:0:1"], ["::2", "127.0.0.1"]),
        ("10.1.2.3,10.1.2.4, ::1", ["10.1.2.3", "10.1.2.4", "::1"], ["10.1.2.5"]),
        ("10.1.2.{3,4}", ["10.1.2.3", "10.1.2.4"], ["10.1.2.34", "10.1.3.3"]),
        ("1:ac41::bb22:{1,20}", ["1:AC41::BB22:1", "1:ac41:0::bb22:20"], ["1:ac41::bb22:2"]),
        ("10.1.2.*", ["10.1.2.0", "10.1.2.255"], ["10.1.3.1", "110.1.2.1"]),
        ("10.1.*.*", ["10.1.0.0", "10.1.255.3"], ["10.2.0.0"]),
        ("10.*.*.*", ["10.9.9.9"], ["11.9.9.9", "1.0.9.9"]),
        ("10.1.2.5-9", ["10.1.2.5", "10.1.2.9"], ["10.1.2.4", "10.1.2.10"]),
        ("10.1.5-9.*", ["10.1.5.1", "10.1.9.255"], ["10.1.4.1", "10.1.10.1"]),
        ("10.5-9.*.*", ["10.5.1.1"], ["10.4.1.1"]),
        ("5::7:6:1-200:*", ["5::7:6:1:9", "5::7:6:200:ffff"], ["5::7:6:201:1", "5::7:5:1:1"]),
        ("5::7:6:1-200", ["5::7:6:1", "5::7:6:200"], ["5::7:6:201", "5::7:6:0"]),
        ("5::7:6:*", ["5::7:6:0", "5::7:6:ffff"], ["5::7:7:0", "5::6:7:6:0"]),
        ("1:2:3:4:5:6:7:*", ["1:2:3:4:5:6:7:8"], ["1:2:3:4:5:6:8:8"]),
    ],
)
def test_a_line_is_parsed_into_its_addresses(
    line: str, inside: list[str], outside: list[str]
) -> None:
    assert matching(line, *inside, *outside) == inside


@pytest.mark.parametrize(
    "line",
    [
        *("10.1.2", "10.1.2.256", "10.1.2.03", "localhost", "10.1.2.3.4", "1::2::3"),
        *("10.1.2.{3,4", "10.1.2{3,4}", "10.1.2.{}", "10.1.2.{3,x}", "{1,2}", ","),
        *("*.1.2.3", "1-2.1.2.3", "10.1.2.-9", "10.1.2.9-", "10.1.2.9-5", "10.1.2.1-256"),
        *("10.1.*", "10.x.2.*", "10.1.2.1*", "10.1.2.1-2-3", "1:2:*:4:5:6:7:8", "*:2", "1::2:x-3"),
        *("1:2:3:4:5:6:7:8:*", "1:2:*", "1:*:*", "::g-h"),
    ],
)
def test_a_meaningless_line_is_rejected(line: str) -> None:
    with pytest.raises(ValueError, match="'"):
        parse_rule(line)


def test_a_zone_is_not_part_of_an_address() -> None:
    assert matching("fe80::1", "fe80::1%eth0") == ["fe80::1%eth0"]
