"""NameServerAlone: a standalone name server process, with its accounts."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from broker_core.composition.access import acl_files_of, authorizer_of
from broker_core.composition.foundation import limits_of, proxies_of
from broker_core.composition.lifecycle import Stage, shut_down_all, start_all
from broker_core.composition.live_update import keep
from broker_core.config.lists import PLAIN_ACL
from broker_core.errors import ConfigError
from broker_core.listening.tls import TlsGate
from broker_core.namesrv.namesrv import Entrance, NameServer
from broker_core.processors.wrappers.guard import guard_by_rule

if TYPE_CHECKING:
    from pathlib import Path

    from broker_core.clock import Clock
    from broker_core.config.configuration import Configuration
    from broker_core.storage import Storage


class NameServerAlone:
    """Serves until it is shut down. Event loop only."""

    def __init__(
        self, configuration: Configuration, kv_config_path: Path, clock: Clock, files: Storage
    ) -> None:
        """Build the name server, and with aclEnable=true the access control for changes.

        Raises:
            ConfigError: a certificate can't be used; or access validators are configured, which
                only see a broker's requests.
        """
        config = configuration.broker
        if config.access_validators != PLAIN_ACL:
            wanted = f"{PLAIN_ACL}; a name server without a broker doesn't load extensions"
            raise ConfigError("accessValidators", config.access_validators, wanted)
        acl = acl_files_of(configuration, clock, files) if config.acl_enable else None
        name_server = NameServer(
            config.bind_address,
            configuration.server.listen_port,
            clock,
            files,
            kv_config_path,
            entrance=Entrance(
                limits_of(configuration),
                TlsGate(configuration.tls, clock=clock),
                proxies_of(configuration.server),
                None
                if acl is None
                else partial(guard_by_rule, authorizer=authorizer_of(configuration, acl, clock)),
            ),
            config=configuration.namesrv,
            keep=lambda changed: keep(files, configuration.path, changed),
        )
        self._stages = [Stage(name_server.start, name_server.shutdown)]
        if acl is not None:
            self._stages[:0] = [Stage(acl.load), Stage(acl.start, acl.shutdown)]

    async def start(self) -> None:
        """Load the accounts and the stored state, then serve.

        Raises:
            StoreError: a file is damaged.
            RemotingError: the port can't be opened; `shutdown` stops the parts already started.
        """
        await start_all(self._stages)

    async def shutdown(self) -> None:
        """Close the port with its connections."""
        await shut_down_all(self._stages)
