"""A broker's configuration as it answers it: its keys, and what it says of them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class BrokerKey:
    """A key of a broker. A broker of RocketMQ's own says its value only: `is_described` is false.

    `default` None: it has none. `choices` are all values that it takes, empty where others are.
    """

    key: str
    value: str
    default: str | None = None
    is_live: bool = False
    kind: str = "text"
    unit: str = ""
    low: int = 0
    high: int = 0
    choices: tuple[str, ...] = ()
    is_secret: bool = False
    is_effective: bool = True
    is_described: bool = False

    @property
    def is_changed(self) -> bool:
        """Whether it differs from its default."""
        return self.is_described and self.default is not None and self.value != self.default
