"""Checks of texts: each raises ValueError with a description of valid values."""

from __future__ import annotations

import re
import socket
from urllib.parse import urlsplit

from broker_core.config.lists import (
    PLAIN_ACL,
    names_of,
    parse_addresses,
    parse_admin_listener,
    parse_networks,
)

_NAME = re.compile(r"[%|a-zA-Z0-9_.-]{1,127}")
_EXTENSION_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_DOMAIN = re.compile(r"[a-zA-Z0-9._-]+(:\d{1,5})?")
_PATH_PART = re.compile(r"[a-zA-Z0-9._/-]+")
_DELAY = re.compile(r"\d{1,6}[smhd]")


def addresses(text: str) -> None:
    try:
        parse_addresses(text)
    except ValueError as error:
        wanted = f"name servers as host:port;host:port ({str(error)!r} is not host:port)"
        raise ValueError(wanted) from None


def endpoint(text: str) -> None:
    try:
        found = parse_addresses(text)
    except ValueError:
        found = []
    if text and len(found) != 1:
        raise ValueError("host:port, which clients can reach")


def ha_address(text: str) -> None:
    try:
        found = parse_addresses(text)
    except ValueError:
        found = []
    if text and len(found) != 1:
        raise ValueError("the host:port of a master's HA service")


def url(text: str) -> None:
    parts = urlsplit(text)
    # A log would show a password in the URL.
    if text and (parts.scheme != "http" or not parts.hostname or "@" in parts.netloc):
        raise ValueError("an address such as http://host:8080/rocketmq/nsaddr")


def domain(text: str) -> None:
    if not _DOMAIN.fullmatch(text):
        raise ValueError("a host such as jmenv.tbsite.net, with or without :port")


def path_part(text: str) -> None:
    if not _PATH_PART.fullmatch(text):
        raise ValueError("the end of an address's path, such as nsaddr")


def name(text: str) -> None:
    if not _NAME.fullmatch(text):
        raise ValueError("1 to 127 of the characters a-z A-Z 0-9 % | . _ -")


def host(text: str) -> None:
    try:
        socket.getaddrinfo(text, None, flags=socket.AI_NUMERICHOST)
    except OSError:
        raise ValueError("a numeric address, such as 127.0.0.1") from None


def optional_host(text: str) -> None:
    if text:
        host(text)


def admin_listener(text: str) -> None:
    if text:
        parse_admin_listener(text)


def networks(text: str) -> None:
    try:
        parse_networks(text)
    except ValueError as error:
        wanted = f"addresses or networks, such as 10.0.0.5,10.1.0.0/16 ({error})"
        raise ValueError(wanted) from None


def hours(text: str) -> None:
    parts = [part.strip() for part in text.split(";") if part.strip()]
    if not parts or not all(part.isdecimal() and int(part) < 24 for part in parts):
        raise ValueError("hours of the day from 00 to 23, separated by ;")


def delay_levels(text: str) -> None:
    if not text.split() or not all(_DELAY.fullmatch(part) for part in text.split()):
        raise ValueError("delays such as '1s 5s 1m 2h', separated by blanks")


def one_directory(text: str) -> None:
    if "," in text:
        raise ValueError("one directory; several commit log directories aren't supported")


def no_java(key: str) -> str:
    """Return what to do instead of naming a Java class, given the key for it."""
    return (
        "Java classes cannot be loaded: write a Python package with an entry point and name that "
        f"in {key} (docs/extensions.md)"
    )


def extensions(key: str, at_most: int, text: str) -> None:
    """Check the extension names in a key, and their number."""
    names = names_of(text)
    if any("." in name for name in names):
        raise ValueError(f"names of Python extensions, since {no_java(key)}")
    if not all(_EXTENSION_NAME.fullmatch(name) for name in names):
        raise ValueError("names of up to 64 of the characters a-z A-Z 0-9 _ -, separated by commas")
    if len(set(names)) < len(names):
        raise ValueError("each name once")
    if len(names) > at_most:
        raise ValueError("one name" if at_most == 1 else f"at most {at_most} names")


def validators(text: str) -> None:
    if not names_of(text):
        raise ValueError(f"at least one name; {PLAIN_ACL} is RocketMQ's own")
