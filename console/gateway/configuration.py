"""A broker's configuration keys and their descriptions."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class BrokerKey:
    """A configuration key. RocketMQ brokers report values only: `is_described` is false.

    `default` is None if the key has no default. `choices` lists all allowed values, or is empty if
    the value is free-form.
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
        """Whether the value differs from the default."""
        return self.is_described and self.default is not None and self.value != self.default
