"""Keys with an effect: the fields of the sections, by their RocketMQ names."""

from __future__ import annotations

from dataclasses import Field, dataclass, fields
from typing import Any, get_type_hints

from broker_core.config.broker import BrokerConfig
from broker_core.config.ha import HaConfig
from broker_core.config.limits import LimitsConfig
from broker_core.config.namesrv import NamesrvConfig
from broker_core.config.server import ServerConfig
from broker_core.config.setting import METADATA_KEY, PLAIN, Setting
from broker_core.config.store import StoreConfig
from broker_core.config.tls import TlsConfig


@dataclass(frozen=True, slots=True)
class Key:
    """A key: its name, and the field that holds its value."""

    name: str
    section: type[Any]
    attribute: str
    kind: Any
    """The type of its value: bool, int, str or a Literal of texts."""
    setting: Setting


def _keys_of(section: type[Any]) -> tuple[Key, ...]:
    kinds = get_type_hints(section)
    return tuple(
        Key(_name_of(one), section, one.name, kinds[one.name], _setting_of(one))
        for one in fields(section)
    )


def _setting_of(one: Field[Any]) -> Setting:
    found: Setting = one.metadata.get(METADATA_KEY, PLAIN)
    return found


def _name_of(one: Field[Any]) -> str:
    head, *tail = one.name.split("_")
    return _setting_of(one).key or head + "".join(part.capitalize() for part in tail)


SECTIONS = {
    section: _keys_of(section)
    for section in (
        BrokerConfig,
        HaConfig,
        LimitsConfig,
        NamesrvConfig,
        ServerConfig,
        StoreConfig,
        TlsConfig,
    )
}
KEYS = {key.name: key for keys in SECTIONS.values() for key in keys}
ALIASES = {alias: name for name, key in KEYS.items() for alias in key.setting.aliases}
NAMESRV_KEYS = tuple(name for name, key in KEYS.items() if key.section is NamesrvConfig)
LIVE_KEYS = frozenset(name for name, key in KEYS.items() if key.setting.is_live)
"""Keys that may change while the broker runs; NAMESRV_KEYS change through its name server."""
IMPORTANT_KEYS = tuple(name for name, key in KEYS.items() if key.setting.is_important)
"""The keys that `-m` prints."""
SECRET_KEYS = frozenset(name for name, key in KEYS.items() if key.setting.is_secret)
EXTENSION_KEYS = tuple(name for name, key in KEYS.items() if key.setting.extensions_max)
"""Keys that name extensions."""
