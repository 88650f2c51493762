"""Commands of an operator: `promote` and `truncate`.

`promote` asks a running broker; a stopped one is promoted in its store directory, so that its next
start is a master's. `truncate` works on a stopped broker only: its next start cuts the log.
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
from broker_core.composition.promotion import build_peers, configured_role, in_given_role
from broker_core.composition.storage import build_storage, load_storage
from broker_core.config.lists import parse_addresses, parse_admin_listener
from broker_core.config.loading import load
from broker_core.errors import RemotingConnectError, ReplicationError
from broker_core.ha.divergence import save_aside
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
    """Run `python -m broker_core promote`; returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m broker_core promote",
        description="Make a slave the master of its set. A running broker is asked over its port; "
        "a stopped one (-c only) starts as master from then on.",
    )
    parser.add_argument("-c", "--configFile", metavar="FILE", help="the slave's configuration")
    parser.add_argument("-b", "--brokerAddr", metavar="HOST:PORT", help="a running slave")
    parser.add_argument(
        "--role", choices=MASTER_ROLES, default="", help="default: the old master's"
    )
    parser.add_argument(
        "--force",
        action="store_true",
        help="even if the old master may be alive: what it takes from then on is lost to readers",
    )
    parser.add_argument(
        "--accessKey",
        default="",
        metavar="NAME",
        help=f"an administrator's account; its secret key is read from {SECRET_VARIABLE}",
    )
    options = parser.parse_args(given)
    if not options.configFile and not options.brokerAddr:
        parser.error("name the slave, by -c or -b")
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
    """Run `python -m broker_core truncate`; returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m broker_core truncate",
        description="Cut the log of a stopped broker at an offset, so that it can follow a master "
        "that has no more. What is cut is saved in the store's directory diverged/ before.",
    )
    parser.add_argument("-c", "--configFile", metavar="FILE", required=True)
    parser.add_argument("--at", metavar="OFFSET", type=int, required=True)
    options = parser.parse_args(given)
    configuration, errors = load(options.configFile)
    for error in errors:
        _say(str(error))
    if errors:
        return EXIT_USAGE
    foundation, storage = _opened(configuration)
    store = storage.store
    try:
        low, high = store.min_commit_log_offset, store.max_commit_log_offset
        if not low <= options.at <= high:
            raise ReplicationError(
                f"the log holds offsets {low} to {high}; {options.at} is not among them"
            )
        if options.at == high:
            sys.stdout.write(f"the log ends at {high} already\n")
            return EXIT_OK
        own = LogRange(storage.epochs.entries, low, high)
        paths = store.files.paths
        place = save_aside(store.files.log, options.at, own, (), paths.diverged, foundation.files)
        storage.epochs.ask_for_cut(options.at)
    finally:
        store.close()
    sys.stdout.write(
        f"{high - options.at} bytes are saved in {place}; the next start cuts the log at "
        f"{options.at}\n"
    )
    return EXIT_OK


async def _promote_running(configuration: Configuration, address: str, options: Namespace) -> str:
    """Ask the broker itself; return what it became.

    Raises:
        RemotingConnectError: nobody is there.
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
    address = address or _administered_at(configuration)
    try:
        answer = await client.request(address, request, PROMOTE_TIMEOUT_S)
    finally:
        await client.shutdown()
    if answer.code != ResponseCode.SUCCESS:
        hint = " (--force)" if answer.ext_fields.get("masterAlive") == "true" else ""
        raise ReplicationError(f"{address} is not promoted: {answer.remark}{hint}")
    told = answer.ext_fields
    return _promoted(address, told["brokerRole"], told["epoch"], told["startOffset"])


def _promote_stopped(configuration: Configuration, options: Namespace) -> str:
    foundation, storage = _opened(configuration)
    naming = build_naming(foundation, storage.topics, None, lambda: 0, lambda *_: None)
    _, configured_id = configured = configured_role(configuration)
    store = storage.store

    async def nothing_comes() -> None:
        """No connection is made."""

    async def run() -> str:
        peers = build_peers(foundation, naming)
        # Whatever it was before: nobody has to be told that it is a master now.
        promotion = Promotion(
            Role(SLAVE, max(configured_id, 1)),
            configured,
            storage.epochs,
            peers,
            former_id=lambda: configured_id or None,
            followed=lambda: None,
            last_role=str,
            stop_following=nothing_comes,
            max_offset=lambda: store.max_commit_log_offset,
        )
        try:
            promoted = await promotion.promote(options.role, is_forced=options.force)
        finally:
            await peers.shutdown()
        return _promoted(
            foundation.address,
            promoted.broker_role,
            str(promoted.epoch),
            str(promoted.start_offset),
        )

    try:
        return asyncio.run(run())
    finally:
        store.close()


def _promoted(address: str, broker_role: str, epoch: str, start_offset: str) -> str:
    return f"{address} is {broker_role} in epoch {epoch}, from offset {start_offset} on"


def _opened(configuration: Configuration) -> tuple[Foundation, StorageParts]:
    """Take the store of a stopped broker and recover it.

    Raises:
        StoreError: a broker uses it, or it cannot be used.
    """
    files = FileStorage()
    given = in_given_role(configuration, files)
    foundation = build_foundation(replace(given, path=None), SystemClock(), files)
    storage = build_storage(foundation)
    load_storage(foundation, storage)
    return foundation, storage


def _administered_at(configuration: Configuration) -> str:
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
            raise ReplicationError(f"{SECRET_VARIABLE} holds no secret key for {access_key}")
        account = Credentials(access_key, secret)
    elif broker.namesrv_access_key:
        account = Credentials(broker.namesrv_access_key, broker.namesrv_secret_key)
    else:
        return None
    return FreshSigner(account, SystemClock().now_ms)


def _say(sentence: str) -> None:
    sys.stderr.write(f"broker_core: {sentence}\n")
