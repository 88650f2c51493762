"""Access: the accounts, and the gate that requests pass through."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from broker_core.access.acl_files import AclFiles
from broker_core.access.authorizer import Authorizer
from broker_core.config.lists import PLAIN_ACL, names_of
from broker_core.processors.wrappers.validators import AccessValidators

if TYPE_CHECKING:
    from broker_core.clock import Clock
    from broker_core.composition.foundation import Foundation
    from broker_core.config.configuration import Configuration
    from broker_core.processors.wrappers.guard import Gate
    from broker_core.storage import Storage

ACL_DIRECTORY = "conf"
ACL_FILE = "plain_acl.yml"


@dataclass(frozen=True, slots=True)
class AccessParts:
    """The parts that decide whether a request passes."""

    acl: AclFiles | None
    """RocketMQ's accounts; None if they aren't used."""
    gate: Gate | None
    """None lets all requests pass."""
    plain: Authorizer | None = None
    """Checks requests against `acl`: the gate itself, or one of its validators."""

    def refused(self) -> int:
        """Return how many requests the access control `acl` refused."""
        return 0 if self.plain is None else self.plain.refused.total()


def build_access(foundation: Foundation) -> AccessParts:
    """Build the gate according to the configuration."""
    config, extensions = foundation.configuration.broker, foundation.extensions
    validators = names_of(config.access_validators)
    if not config.acl_enable:
        return AccessParts(None, None)
    acl = None
    if PLAIN_ACL in validators:
        acl = acl_files_of(foundation.configuration, foundation.clock, foundation.files)
    plain = None if acl is None else authorizer_of(foundation.configuration, acl, foundation.clock)
    if validators == [PLAIN_ACL]:
        return AccessParts(acl, plain, plain)
    gate = AccessValidators(extensions.access_validators, plain, extensions.failures)
    return AccessParts(acl, gate, plain)


def authorizer_of(configuration: Configuration, acl: AclFiles, clock: Clock) -> Authorizer:
    """Return the authorizer for the accounts in these files."""
    return Authorizer(
        acl,
        clock,
        configuration.limits,
        is_fresh_for_admins=configuration.broker.admins_require_fresh_signature,
    )


def acl_files_of(configuration: Configuration, clock: Clock, files: Storage) -> AclFiles:
    """Return the account files in a configuration, not yet loaded."""
    root = Path(configuration.store.store_path_root_dir)
    path = Path(configuration.broker.acl_file or root.parent / ACL_DIRECTORY / ACL_FILE)
    return AclFiles(path.expanduser().absolute(), clock, files)
