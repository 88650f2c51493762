"""Operator commands: `promote` and `truncate`.

`promote` sends a request to a running broker; a stopped broker is promoted in its store directory
and starts as a master the next time. `truncate` works only on a stopped broker: its next start cuts
the log.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
from dataclasses import replace
from typing import TYPE_CHECKING

from broker_core.clock import SystemClock
from broker_core.composition.foundation import build_foundation, client_limits_of
from broker_core.composition.naming import build_naming
from broker_core.composition.promotion import build_peers, configured_role, with_stored_role
from broker_core.composition.storage import build_storage, load_storage
from broker_core.config.lists import parse_addresses, parse_admin_listener
from broker_core.config.loading import load
from broker_core.errors import RemotingConnectError, ReplicationError
from broker_core.ha.divergence import save_diverged
from broker_core.ha.epochs import LogRange
from broker_core.ha.promotion import MASTER_ROLES, Promotion
from broker_core.ha.role import SLAVE, Role
from broker_core.listening.tls import client_context
from broker_core.protocol.codes import RequestCode, ResponseCode
from broker_core.protocol.command import RemotingCommand
from broker_core.protocol.fresh_signature import FreshSigner
from broker_core.protocol.signature import Credentials
from broker_core.remoting.client import RemotingClient
from broker_core.storage import FileStorage

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Sequence

    from broker_core.composition.foundation import Foundation
    from broker_core.composition.storage import StorageParts
    from broker_core.config.configuration import Configuration

PROMOTE_TIMEOUT_S = 60.0
SECRET_VARIABLE = "TREBUCHET_SECRET_KEY"
EXIT_OK = 0
EXIT_FAILED = 1
EXIT_USAGE = 2


def promote(given: Sequence[str]) -> int:
    """Run `python -m broker_core promote`; return the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m broker_core promote",
        description="Make a slave the master of its set. A running broker is promoted over its "
        "port; a stopped broker (-c only) becomes master at its next start.",
    )
    parser.add_argument("-c", "--configFile", metavar="FILE", help="the slave's configuration")
    parser.add_argument("-b", "--brokerAddr", metavar="HOST:PORT", help="a running slave")
    parser.add_argument(
        "--role", choices=MASTER_ROLES, default="", help="default: the old master's"
    )
    parser.add_argument(
        "--force",
        action="store_true",
        help=(
            "promote even if the old master may be running; messages that it still accepts are "
            "lost to consumers"
        ),
    )
    parser.add_argument(
        "--accessKey",
        default="",
        metavar="NAME",
        help=f"an administrator's account; its secret key is read from {SECRET_VARIABLE}",
    )
    options = parser.parse_args(given)
    if not options.configFile and not options.brokerAddr:
        parser.error("specify the slave with -c or -b")
    configuration, errors = load(options.configFile)
    for error in errors:
        _say(str(error))
    if errors:
        return EXIT_USAGE
    try:
        address = parse_addresses(options.brokerAddr)[0] if options.brokerAddr else ""
    except (ValueError, IndexError):
        parser.error(f"{options.brokerAddr} is not HOST:PORT")
    try:
        sentence = asyncio.run(_promote_running(configuration, address, options))
    except RemotingConnectError as error:
        if address:
            raise
        _say(f"{error}; promoting the stopped broker")
        sentence = _promote_stopped(configuration, options)
    sys.stdout.write(sentence + "\n")
    return EXIT_OK


def truncate(given: Sequence[str]) -> int:
    """Run `python -m broker_core truncate`; return the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m broker_core truncate",
        description="Cut the log of a stopped broker at an offset, so that it can follow a "
        "master whose log ends there. The part that is cut is first saved in the "
        "store's diverged/ directory.",
    )
    parser.add_argument("-c", "--configFile", metavar="FILE", required=True)
    parser.add_argument("--at", metavar="OFFSET", type=int, required=True)
    options = parser.parse_args(given)
    configuration, errors = load(options.configFile)
    for error in errors:
        _say(str(error))
    if errors:
        return EXIT_USAGE
    foundation, storage = _recovered_store(configuration)
    store = storage.store
    try:
        low, high = store.min_commit_log_offset, store.max_commit_log_offset
        if not low <= options.at <= high:
            raise ReplicationError(
                f"the log holds offsets {low} to {high}; {options.at} is outside that range"
            )
        if options.at == high:
            sys.stdout.write(f"the log already ends at {high}\n")
            return EXIT_OK
        own = LogRange(storage.epochs.entries, low, high)
        paths = store.files.paths
        place = save_diverged(
            store.files.log, options.at, own, (), paths.diverged, foundation.files
        )
        storage.epochs.schedule_cut(options.at)
    finally:
        store.close()
    sys.stdout.write(
        f"saved {high - options.at} bytes in {place}; the next start cuts the log at {options.at}\n"
    )
    return EXIT_OK


async def _promote_running(configuration: Configuration, address: str, options: Namespace) -> str:
    """Ask the broker itself; return its new state.

    Raises:
        RemotingConnectError: the broker isn't running.
        ReplicationError: it refuses.
    """
    tls = configuration.tls
    client = RemotingClient(
        signer=_signer(configuration, options.accessKey),
        limits=client_limits_of(configuration),
        tls=client_context(tls) if tls.use_tls else None,
    )
    fields = {"brokerRole": options.role, "force": "true" if options.force else "false"}
    request = RemotingCommand.request(RequestCode.PROMOTE_BROKER, fields)
    address = address or _admin_address(configuration)
    try:
        answer = await client.request(address, request, PROMOTE_TIMEOUT_S)
    finally:
        await client.shutdown()
    if answer.code != ResponseCode.SUCCESS:
        hint = " (--force)" if answer.ext_fields.get("masterAlive") == "true" else ""
        raise ReplicationError(f"{address} was not promoted: {answer.remark}{hint}")
    told = answer.ext_fields
    return _promotion_text(address, told["brokerRole"], told["epoch"], told["startOffset"])


def _promote_stopped(configuration: Configuration, options: Namespace) -> str:
    foundation, storage = _recovered_store(configuration)
    naming = build_naming(foundation, storage.topics, None, lambda: 0, lambda *_: None)
    _, configured_id = configured = configured_role(configuration)
    store = storage.store

    async def nothing_to_stop() -> None:
        """Do nothing, because there is no connection to stop."""

    async def run() -> str:
        peers = build_peers(foundation, naming)
        # The previous role doesn't matter: there is no running broker to notify.
        promotion = Promotion(
            Role(SLAVE, max(configured_id, 1)),
            configured,
            storage.epochs,
            peers,
            former_id=lambda: configured_id or None,
            followed=lambda: None,
            last_role=str,
            stop_following=nothing_to_stop,
            max_offset=lambda: store.max_commit_log_offset,
        )
        try:
            promoted = await promotion.promote(options.role, is_forced=options.force)
        finally:
            await peers.shutdown()
        return _promotion_text(
            foundation.address,
            promoted.broker_role,
            str(promoted.epoch),
            str(promoted.start_offset),
        )

    try:
        return asyncio.run(run())
    finally:
        store.close()


def _promotion_text(address: str, broker_role: str, epoch: str, start_offset: str) -> str:
    return f"{address} is {broker_role} in epoch {epoch}, from offset {start_offset} on"


def _recovered_store(configuration: Configuration) -> tuple[Foundation, StorageParts]:
    """Lock the store of a stopped broker and recover it.

    Raises:
        StoreError: a broker uses it, or it can't be used.
    """
    files = FileStorage()
    given = with_stored_role(configuration, files)
    foundation = build_foundation(replace(given, path=None), SystemClock(), files)
    storage = build_storage(foundation)
    load_storage(foundation, storage)
    return foundation, storage


def _admin_address(configuration: Configuration) -> str:
    listener = configuration.broker.admin_listen_address
    if not listener:
        return f"{configuration.broker.broker_ip1}:{configuration.server.listen_port}"
    parsed = parse_admin_listener(listener)
    return parsed if isinstance(parsed, str) else f"{parsed[0]}:{parsed[1]}"


def _signer(configuration: Configuration, access_key: str) -> FreshSigner | None:
    broker = configuration.broker
    if access_key:
        secret = os.environ.get(SECRET_VARIABLE, "")
        if not secret:
            raise ReplicationError(f"no secret key for {access_key}; set {SECRET_VARIABLE}")
        account = Credentials(access_key, secret)
    elif broker.namesrv_access_key:
        account = Credentials(broker.namesrv_access_key, broker.namesrv_secret_key)
    else:
        return None
    return FreshSigner(account, SystemClock().now_ms)


def _say(sentence: str) -> None:
    sys.stderr.write(f"broker_core: {sentence}\n")
