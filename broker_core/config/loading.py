"""Loading: reads a file into a Configuration and collects every error."""

from __future__ import annotations

import re
import socket
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from broker_core.config.broker import BrokerConfig
from broker_core.config.checks import no_java
from broker_core.config.configuration import EXTENSION_OPTION, Configuration
from broker_core.config.exposure import exposure_of
from broker_core.config.ha import HaConfig
from broker_core.config.keys import ALIASES, EXTENSION_KEYS, KEYS, SECRET_KEYS, SECTIONS
from broker_core.config.limits import LimitsConfig
from broker_core.config.lists import PLAIN_ACL, names_of
from broker_core.config.log_levels import LOG_LEVEL_OPTION, check_log_level
from broker_core.config.namesrv import NamesrvConfig
from broker_core.config.properties import parse_properties
from broker_core.config.server import PORT_MAX, ServerConfig
from broker_core.config.store import CQ_UNIT_BYTES, StoreConfig
from broker_core.config.tls import TLS_CONFIG_FILE, TlsConfig
from broker_core.config.unknown_keys import unknown_key
from broker_core.config.unsupported_keys import JAVA_CLASSES, ONE_VALUE, WITHOUT_EFFECT
from broker_core.config.values import parse_value
from broker_core.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

CONFIG_BYTES_MAX = 1 << 20
HA_PORT_STEP = 1
"""The HA port is this far above the listening port, unless haListenPort is set."""


def load(
    path: str | None,
    overrides: Mapping[str, str] | None = None,
    *,
    defaults: Mapping[str, str] | None = None,
) -> tuple[Configuration, list[ConfigError]]:
    """Read a configuration file, if any, and build the Configuration.

    Overrides win over the file, the file over `defaults`, and these over RocketMQ's defaults.

    Raises:
        ConfigError: the file can't be read.
    """
    table: dict[str, str] = {}
    warnings: list[str] = []
    if path is not None:
        try:
            raw = Path(path).read_bytes()
        except OSError as error:
            wanted = f"a readable file ({error.strerror})"
            raise ConfigError("-c", path, wanted) from error
        if len(raw) > CONFIG_BYTES_MAX:
            raise ConfigError("-c", path, f"a file of at most {CONFIG_BYTES_MAX} bytes")
        table = parse_properties(raw.decode("utf-8", errors="replace"))
        warnings += exposed_secrets(Path(path), table)
    table = {**(defaults or {}), **table, **(overrides or {})}
    tls_file = table.get("tls.config.file")
    tls_table = _tls_table(tls_file)
    warnings += exposed_secrets(Path(tls_file or TLS_CONFIG_FILE), tls_table)
    configuration, errors = build({**tls_table, **table})
    warnings += configuration.warnings
    return replace(configuration, path=path, warnings=tuple(warnings)), errors


def exposed_secrets(file: Path, table: Mapping[str, str]) -> list[str]:
    """Return the warning about a file with these keys, if it exposes secrets to other users.

    An extension's own keys count as secrets.
    """
    secrets = [
        name
        for name, text in table.items()
        if text and (name in SECRET_KEYS or name.startswith(EXTENSION_OPTION))
    ]
    warning = exposure_of(file) if secrets else None
    return [] if warning is None else [warning]


def build(table: Mapping[str, str]) -> tuple[Configuration, list[ConfigError]]:
    """Build a Configuration from keys and values, with every error found.

    Use the Configuration only if the list of errors is empty.
    """
    given = _Values()
    for name, text in table.items():
        try:
            given.take(name, text)
        except ValueError as error:
            given.errors.append(ConfigError(name, text, str(error)))
    given.check_together(table)
    values = given.values
    server = _section(ServerConfig, values)
    configuration = Configuration(
        broker=_complete_broker(_section(BrokerConfig, values), values),
        store=_complete_store(_section(StoreConfig, values)),
        server=server,
        ha=_complete_ha(_section(HaConfig, values), server, values),
        tls=_section(TlsConfig, values),
        namesrv=_section(NamesrvConfig, values),
        limits=_section(LimitsConfig, values),
        extension_options=given.options,
        log_levels=given.log_levels,
        warnings=tuple(given.warnings),
        without_effect=tuple(sorted(given.without_effect)),
    )
    return configuration, given.errors


class _Values:
    """The values from the keys of a file."""

    def __init__(self) -> None:
        self.values: dict[str, Any] = {}
        self.options: dict[str, dict[str, str]] = {}
        self.log_levels: dict[str, str] = {}
        self.without_effect: list[tuple[str, str]] = []
        self.warnings: list[str] = []
        self.errors: list[ConfigError] = []

    def take(self, name: str, text: str) -> None:
        """Parse and store one key.

        Raises:
            ValueError: a description of valid values.
        """
        key = KEYS.get(ALIASES.get(name, name))
        if key is not None:
            self.values[key.name] = parse_value(key, text)
            if not key.setting.has_effect:
                self.without_effect.append((key.name, text))
        elif name in ONE_VALUE:
            only, reason = ONE_VALUE[name]
            if text.strip().casefold() != only.casefold():
                raise ValueError(f"{only or 'nothing'!r}, since {reason}")
        elif name in JAVA_CLASSES:
            if text:
                raise ValueError(f"nothing, since {no_java(JAVA_CLASSES[name])}")
        elif name.startswith(EXTENSION_OPTION):
            extension, _, option = name.removeprefix(EXTENSION_OPTION).partition(".")
            self.options.setdefault(extension, {})[option] = text
        elif name.startswith(LOG_LEVEL_OPTION):
            package = name.removeprefix(LOG_LEVEL_OPTION)
            check_log_level(package, text)
            self.log_levels[package] = text
        elif name in WITHOUT_EFFECT:
            self.without_effect.append((name, text))
        else:
            self.warnings.append(unknown_key(name, " is ignored"))

    def check_together(self, table: Mapping[str, str]) -> None:
        """Check keys against each other."""
        values = self.values
        self._check_role(table)
        values.setdefault("useTLS", values.get("tls.server.mode") == "enforcing")
        if bool(values.get("tls.server.certPath")) != bool(values.get("tls.server.keyPath")):
            wanted = "given together with tls.server.keyPath"
            path = table.get("tls.server.certPath", "")
            self.errors.append(ConfigError("tls.server.certPath", path, wanted))
        is_told = values.get("namesrvAddr") or values.get("fetchNamesrvAddrByAddressServer")
        if values.get("embeddedNamesrv") is False and not is_told:
            wanted = "true, or a namesrvAddr; clients find this broker through a name server"
            self.errors.append(ConfigError("embeddedNamesrv", "false", wanted))
        if bool(values.get("namesrvAccessKey")) != bool(values.get("namesrvSecretKey")):
            wanted = "given together with namesrvSecretKey"
            access_key = values.get("namesrvAccessKey", "")
            self.errors.append(ConfigError("namesrvAccessKey", access_key, wanted))
        if values.get("accessValidators", PLAIN_ACL) != PLAIN_ACL and not values.get("aclEnable"):
            wanted = "aclEnable=true as well; without it, no validator is called"
            self.errors.append(ConfigError("accessValidators", values["accessValidators"], wanted))
        active = {name for key in EXTENSION_KEYS for name in names_of(values.get(key, ""))}
        self.warnings += [
            f"{EXTENSION_OPTION}{name}.* is ignored: extension {name!r} isn't listed in any "
            f"of {', '.join(EXTENSION_KEYS)}"
            for name in self.options
            if name not in active
        ]
        trusts_proxies = bool(names_of(values.get("proxyProtocolTrusted", "")))
        if values.get("haProxyProtocolEnable") and not trusts_proxies:
            self.warnings.append(
                "haProxyProtocolEnable=true without proxyProtocolTrusted: every connection is "
                "refused, because no proxy is trusted"
            )
        if trusts_proxies and not values.get("haProxyProtocolEnable"):
            warning = "proxyProtocolTrusted has no effect without haProxyProtocolEnable=true"
            self.warnings.append(warning)
        if values.get("transientStorePoolEnable") and values.get("flushDiskType") == "SYNC_FLUSH":
            warning = "transientStorePoolEnable has no effect with flushDiskType=SYNC_FLUSH"
            self.warnings.append(warning)

    def _check_role(self, table: Mapping[str, str]) -> None:
        values = self.values
        role, broker_id = values.get("brokerRole", "ASYNC_MASTER"), values.get("brokerId", 0)
        if role == "SLAVE":
            if broker_id == 0:
                wanted = "a number above 0 for a slave (brokerRole=SLAVE); 0 is the master's"
                self.errors.append(ConfigError("brokerId", table.get("brokerId", "0"), wanted))
            if values.get("transientStorePoolEnable"):
                warning = "transientStorePoolEnable has no effect with brokerRole=SLAVE"
                self.warnings.append(warning)
        elif broker_id:
            # As in RocketMQ: clients find a master by this ID.
            values["brokerId"] = 0
            self.warnings.append(f"brokerId={broker_id} has no effect with brokerRole={role}: 0")
        least, most = values.get("minInSyncReplicas", 1), values.get("inSyncReplicas", 2)
        if least > most:
            wanted = f"at most inSyncReplicas, which is {most}"
            text = table.get("minInSyncReplicas", "")
            self.errors.append(ConfigError("minInSyncReplicas", text, wanted))


def advertised_address(bind_address: str) -> str:
    """Return the address for clients: the bound one, or this host's own for a wildcard."""
    if bind_address not in ("0.0.0.0", "::"):
        return bind_address
    v4 = bind_address == "0.0.0.0"
    with socket.socket(socket.AF_INET if v4 else socket.AF_INET6, socket.SOCK_DGRAM) as probe:
        try:
            # Connecting a datagram socket sends nothing; it only selects the outgoing address.
            probe.connect(("192.0.2.1" if v4 else "2001:db8::1", 9))
            return str(probe.getsockname()[0])
        except OSError:
            return "127.0.0.1" if v4 else "::1"


def _tls_table(path: str | None) -> dict[str, str]:
    """Return the TLS keys of tls.config.file; the file at the default path is optional.

    Raises:
        ConfigError: an explicitly named file can't be read.
    """
    file = Path(path or TLS_CONFIG_FILE)
    if path is None and not file.is_file():
        return {}
    try:
        text = file.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        wanted = f"a readable file ({error.strerror})"
        raise ConfigError("tls.config.file", str(file), wanted) from error
    ours = ("tls.server.", "tls.client.", "tls.test.")
    return {key: value for key, value in parse_properties(text).items() if key.startswith(ours)}


def _section(kind: type[Any], values: Mapping[str, Any]) -> Any:
    return kind(**{key.attribute: values[key.name] for key in SECTIONS[kind] if key.name in values})


def _complete_broker(broker: BrokerConfig, values: Mapping[str, Any]) -> BrokerConfig:
    address = broker.broker_ip1 or advertised_address(broker.bind_address)
    return replace(
        broker,
        broker_ip1=address,
        broker_ip2=broker.broker_ip2 or address,
        broker_name=broker.broker_name or _host_name(),
        embedded_namesrv=values.get(
            "embeddedNamesrv",
            not (broker.namesrv_addr or broker.fetch_namesrv_addr_by_address_server),
        ),
        namesrv_address_server=broker.namesrv_address_server or _address_server(broker),
    )


def _address_server(broker: BrokerConfig) -> str:
    """Source: common/MixAll.java getWSAddr (4.9.7)."""
    domain = broker.rmq_address_server_domain
    port = "" if ":" in domain else ":8080"
    return f"http://{domain}{port}/rocketmq/{broker.rmq_address_server_sub_group}"


def _complete_store(store: StoreConfig) -> StoreConfig:
    root = Path(store.store_path_root_dir or "~/store").expanduser().absolute()
    commit_log = Path(store.store_path_commit_log or root / "commitlog").expanduser().absolute()
    units = -(-store.mapped_file_size_consume_queue // CQ_UNIT_BYTES)
    return replace(
        store,
        store_path_root_dir=str(root),
        store_path_commit_log=str(commit_log),
        mapped_file_size_consume_queue=units * CQ_UNIT_BYTES,
    )


def _complete_ha(ha: HaConfig, server: ServerConfig, values: Mapping[str, Any]) -> HaConfig:
    if "haListenPort" in values:
        return ha
    return replace(ha, ha_listen_port=min(server.listen_port + HA_PORT_STEP, PORT_MAX))


def _host_name() -> str:
    return re.sub(r"[^%|a-zA-Z0-9_.-]", "-", socket.gethostname())[:127] or "broker"
