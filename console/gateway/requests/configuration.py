"""Broker configuration requests."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from broker_core.protocol import java_json
from broker_core.protocol.codes import RequestCode
from console.gateway.configuration import BrokerKey
from console.gateway.requests.call import call, reading

if TYPE_CHECKING:
    from collections.abc import Mapping

    from console.gateway.requests.call import Ask


async def configuration(ask: Ask, address: str) -> tuple[BrokerKey, ...]:
    """Return a broker's configuration keys, sorted by name.

    An extra field requests the key descriptions. RocketMQ brokers ignore it and return a properties
    file.
    """
    code = RequestCode.GET_BROKER_CONFIG
    answer = await call(ask, address, code, {"described": True})
    with reading(address, code):
        if answer.ext_fields.get("described") == "true":
            found = [described(each) for each in java_json.decode(answer.body)["keys"]]
        else:
            lines = [
                line.partition("=")
                for line in answer.body.decode().splitlines()
                if "=" in line and not line.startswith("#")
            ]
            found = [BrokerKey(key.strip(), value.strip()) for key, _equals, value in lines]
    return tuple(sorted(found, key=lambda each: each.key))


def described(each: Mapping[str, Any]) -> BrokerKey:
    default = each["default"]
    return BrokerKey(
        key=str(each["key"]),
        value=str(each["value"]),
        default=None if default is None else str(default),
        is_live=bool(each["live"]),
        kind=str(each["kind"]),
        unit=str(each["unit"]),
        low=int(each["low"]),
        high=int(each["high"]),
        choices=tuple(str(choice) for choice in each["choices"]),
        is_secret=bool(each["secret"]),
        is_effective=bool(each["effective"]),
        is_described=True,
    )


async def configure(ask: Ask, address: str, values: Mapping[str, str]) -> None:
    """Change keys of a running broker; if one is refused, change nothing.

    Raises:
        ValueError: a key or value contains a line break.
        RequestFailedError: the broker refused.
    """
    if any(not text.isprintable() for pair in values.items() for text in pair):
        raise ValueError("a key or value contains a line break")
    body = "".join(f"{key}={escaped(value)}\n" for key, value in values.items()).encode()
    await call(ask, address, RequestCode.UPDATE_BROKER_CONFIG, body=body)


def escaped(value: str) -> str:
    r"""Escape a value for properties text, where \ starts an escape."""
    return value.replace("\\", "\\\\")
