"""Configuration: all current values, and warnings from reading them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from broker_core.config.ha import HaConfig
from broker_core.config.keys import SECTIONS
from broker_core.config.limits import LimitsConfig
from broker_core.config.log_levels import LOG_LEVEL_OPTION
from broker_core.config.namesrv import NamesrvConfig
from broker_core.config.tls import TlsConfig
from broker_core.config.values import HIDDEN, text_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from broker_core.config.broker import BrokerConfig
    from broker_core.config.server import ServerConfig
    from broker_core.config.store import StoreConfig

EXTENSION_OPTION = "extension."
"""The prefix of an extension's own keys: extension.NAME.KEY."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Configuration:
    """The sections, and the keys whose names aren't fixed."""

    broker: BrokerConfig
    store: StoreConfig
    server: ServerConfig
    tls: TlsConfig = field(default_factory=TlsConfig)
    namesrv: NamesrvConfig = field(default_factory=NamesrvConfig)
    limits: LimitsConfig = field(default_factory=LimitsConfig)
    ha: HaConfig = field(default_factory=HaConfig)
    extension_options: Mapping[str, Mapping[str, str]] = field(default_factory=dict, repr=False)
    """Extensions' own keys, by extension; only the extension interprets the values."""
    log_levels: dict[str, str] = field(default_factory=dict)
    """The level of each package with its own logLevel.PACKAGE; see `update`."""
    path: str | None = None
    """The file it was read from; changes over the wire are written to it."""
    warnings: tuple[str, ...] = ()
    without_effect: tuple[tuple[str, str], ...] = ()
    """The (key, value) pairs that were given but have no effect."""

    def sections(self) -> tuple[Any, ...]:
        return (
            self.broker,
            self.ha,
            self.limits,
            self.namesrv,
            self.server,
            self.store,
            self.tls,
        )

    def items(self) -> Iterator[tuple[str, str]]:
        """Yield each effective (key, value) as text, secrets hidden."""
        for section in self.sections():
            for key in SECTIONS[type(section)]:
                yield key.name, text_of(key, getattr(section, key.attribute))
        for package, level in self.log_levels.items():
            yield LOG_LEVEL_OPTION + package, level
        for name, options in self.extension_options.items():
            for option in options:
                yield f"{EXTENSION_OPTION}{name}.{option}", HIDDEN
