"""The command line: `python -m broker_core -c broker.conf`.

Exit codes: 0 stopped on request, 1 couldn't start or continue, 2 invalid command line or
configuration.

Each command imports its modules when it runs: `-p`, which every start of the appliance uses, needs
only the configuration.
"""

from __future__ import annotations

import argparse
import asyncio
import faulthandler
import gc
import logging
import resource
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from broker_core.composition.log_levels import apply_log_levels
from broker_core.config.keys import IMPORTANT_KEYS, NAMESRV_KEYS
from broker_core.config.loading import build, load
from broker_core.errors import BrokerError, ConfigError
from broker_core.log_lines import log_to_stderr

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from broker_core.config.configuration import Configuration
    from broker_core.ha.shutdown import Shutdown

logger = logging.getLogger("broker_core")

EXIT_OK = 0
EXIT_FAILED = 1
EXIT_USAGE = 2
EXIT_RESTART = -1
"""Not a process exit code: the broker restarts in this process."""
LOG_FORMAT = "%(asctime)s %(levelname)s %(name)s - %(message)s"
LOOPBACK = ("127.", "::1", "localhost")
NAMESRV_LISTEN_PORT = 9876
NAMESRV_PLACE_KEYS = ("bindAddress", "listenPort", "kvConfigPath")


class Server(Protocol):
    """A server that runs until it is asked to stop."""

    async def start(self) -> None: ...

    async def shutdown(self) -> None: ...


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; return the exit code."""
    log_to_stderr(LOG_FORMAT)
    given = list(sys.argv[1:] if arguments is None else arguments)
    try:
        if given[:1] == ["namesrv"]:
            return _namesrv(given[1:])
        if given[:1] == ["verify"]:
            return _verify(given[1:])
        if given[:1] in (["promote"], ["truncate"]):
            from broker_core.composition import commands

            return (commands.promote if given[0] == "promote" else commands.truncate)(given[1:])
        return _broker(given)
    except ConfigError as error:
        _say(str(error))
        return EXIT_USAGE
    except BrokerError as error:
        _say(str(error))
        return EXIT_FAILED


def _broker(given: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m broker_core",
        description="Run the broker. Other commands: `python -m broker_core namesrv -h` runs a "
        "name server without a broker, `python -m broker_core verify -h` checks a "
        "store directory, `python -m broker_core promote -h` makes a slave the "
        "master.",
    )
    parser.add_argument("-c", "--configFile", metavar="FILE", help="broker config properties file")
    parser.add_argument(
        "-n", "--namesrvAddr", metavar="LIST", help="name servers, as 127.0.0.1:9876;10.0.0.2:9876"
    )
    parser.add_argument(
        "--default",
        metavar="KEY=VALUE",
        action="append",
        default=[],
        type=_setting,
        help="use this value if the file doesn't set the key; can be repeated",
    )
    parser.add_argument(
        "-p", "--printConfigItem", action="store_true", help="print all configuration, then exit"
    )
    parser.add_argument(
        "-m",
        "--printImportantConfig",
        action="store_true",
        help="print the important configuration, then exit",
    )
    options = parser.parse_args(given)
    overrides = {"namesrvAddr": options.namesrvAddr} if options.namesrvAddr else None
    configuration, errors = load(options.configFile, overrides, defaults=dict(options.default))
    for error in errors:
        _say(str(error))
    if errors:
        return EXIT_USAGE
    if options.printConfigItem or options.printImportantConfig:
        _print_configuration(configuration, important=not options.printConfigItem)
        return EXIT_OK
    import uvloop

    from broker_core.broker import Broker

    _begin_log(configuration)
    if not configuration.broker.acl_enable:
        _warn_of_open_listener(configuration.broker.bind_address)
    _raise_descriptor_limit()
    code = EXIT_RESTART
    while code == EXIT_RESTART:
        # A new broker each time, because it reads its store and its role at the start.
        broker = Broker(configuration)
        broker.load()
        code = uvloop.run(_serve(broker, broker.announcement, broker.ending))
    return code


def _setting(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not (key and equals):
        raise argparse.ArgumentTypeError(f"expected KEY=VALUE, not {text!r}")
    return key, value


def _namesrv(given: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m broker_core namesrv", description="Run a name server without a broker."
    )
    parser.add_argument(
        "-c",
        "--configFile",
        metavar="FILE",
        help=f"properties file with {', '.join(NAMESRV_PLACE_KEYS + NAMESRV_KEYS)}",
    )
    parser.add_argument(
        "-p", "--printConfigItem", action="store_true", help="print all configuration, then exit"
    )
    options = parser.parse_args(given)
    # The name server has a few of the broker's keys; its port has a different default.
    configuration, errors = load(
        options.configFile, defaults={"listenPort": str(NAMESRV_LISTEN_PORT)}
    )
    for error in errors:
        _say(str(error))
    if errors:
        return EXIT_USAGE
    broker = configuration.broker
    path = Path(broker.kv_config_path or "~/namesrv/kvConfig.json").expanduser().absolute()
    host, port = broker.bind_address, configuration.server.listen_port
    if options.printConfigItem:
        shown = dict(configuration.items()) | {"kvConfigPath": str(path)}
        for key in NAMESRV_PLACE_KEYS + NAMESRV_KEYS:
            sys.stdout.write(f"{key}={shown[key]}\n")
        return EXIT_OK
    import uvloop

    from broker_core.clock import SystemClock
    from broker_core.composition.name_server_alone import NameServerAlone
    from broker_core.storage import FileStorage

    _begin_log(configuration)
    _warn_of_open_listener(broker.bind_address)
    name_server = NameServerAlone(configuration, path, SystemClock(), FileStorage())
    return uvloop.run(
        _serve(name_server, lambda: f"The Name Server boot success on {host}:{port}.")
    )


def _verify(given: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m broker_core verify",
        description="Check every record, unit, index entry and configuration file of a store "
        "directory, read-only, and print a JSON report, which also names the topics whose messages "
        "no consumer can read. Exit code 1 when something is wrong.",
    )
    parser.add_argument("directory", metavar="STORE_DIR", type=Path)
    parser.add_argument(
        "--commit-log",
        metavar="DIR",
        type=Path,
        help="storePathCommitLog (default: STORE_DIR/commitlog)",
    )
    parser.add_argument(
        "--rebuild-topics",
        action="store_true",
        help="instead of checking, show which topics and queues of the store config/topics.json "
        "lacks; with --yes, add them",
    )
    parser.add_argument(
        "--yes",
        action="store_true",
        help="with --rebuild-topics: write the file; the broker must be stopped",
    )
    options = parser.parse_args(given)
    if options.yes and not options.rebuild_topics:
        parser.error("--yes requires --rebuild-topics")
    if not options.directory.is_dir():
        _say(f"{options.directory} is not a directory")
        return EXIT_USAGE
    if options.rebuild_topics:
        from broker_core.clock import SystemClock
        from broker_core.composition.topics_rebuild import rebuild_topics
        from broker_core.storage import FileStorage

        changes = rebuild_topics(
            options.directory, FileStorage(), SystemClock().now_ms(), is_preview=not options.yes
        )
        sys.stdout.writelines(f"{change}\n" for change in changes)
        if len(changes) > 1 and not options.yes:
            _say("nothing was changed; stop the broker and add --yes to make these changes")
        return EXIT_OK
    from broker_core.verify.verifier import verify

    report = verify(options.directory, options.commit_log)
    sys.stdout.write(report.as_json() + "\n")
    return EXIT_OK if report.is_sound else EXIT_FAILED


def _raise_descriptor_limit() -> None:
    """Raise the descriptor limit to its maximum: each connection and each mapped file needs one."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


async def _serve(
    server: Server, announcement: Callable[[], str], ending: Shutdown | None = None
) -> int:
    """Run a server until SIGTERM or SIGINT, or until it stops; return the exit code.

    A second signal ends the process immediately.
    """
    loop = asyncio.get_running_loop()
    asked = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, asked.set)
    try:
        await server.start()
    except BrokerError:
        await server.shutdown()
        if ending is not None and ending.is_requested and not asked.is_set():
            return _code_of(ending)
        raise
    # Garbage collection stops the loop, so exempt permanent objects.
    gc.collect()
    gc.freeze()
    logger.info("%s", announcement())
    if ending is not None:
        ending.on_request(asked.set)
    await asked.wait()
    is_ending = ending is not None and ending.is_requested
    if not is_ending:
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(number)
    asked.clear()
    logger.info("shutting down")
    await server.shutdown()
    # The broker may restart in this process.
    gc.unfreeze()
    logger.info("stopped")
    # If a signal arrived while it was about to restart, it stops.
    return _code_of(ending) if ending is not None and is_ending and not asked.is_set() else EXIT_OK


def _code_of(ending: Shutdown) -> int:
    if ending.failure:
        _say(ending.failure)
        return EXIT_FAILED
    return EXIT_RESTART


def _begin_log(configuration: Configuration) -> None:
    """Set the log levels; log the configuration, secrets hidden, and its warnings."""
    apply_log_levels(configuration)
    defaults, _ = build({})
    default_items = dict(defaults.items())
    for key, value in configuration.items():
        level = logging.DEBUG if default_items.get(key) == value else logging.INFO
        logger.log(level, "configuration: %s=%s", key, value)
    if configuration.without_effect:
        keys = " ".join(f"{key}={value}" for key, value in configuration.without_effect)
        logger.info("configuration keys without effect keys=%s", keys)
    for warning in configuration.warnings:
        logger.warning("%s", warning)


def _print_configuration(configuration: Configuration, *, important: bool) -> None:
    items = dict(configuration.items())
    for key in IMPORTANT_KEYS if important else sorted(items):
        sys.stdout.write(f"{key}={items[key]}\n")
    if not important:
        for key, value in configuration.without_effect:
            sys.stdout.write(f"# {key}={value} (accepted, without effect here)\n")
    for warning in configuration.warnings:
        _say(warning)


def _warn_of_open_listener(bind_address: str) -> None:
    if not bind_address.startswith(LOOPBACK):
        logger.warning(
            "port open without access control bindAddress=%s",
            bind_address,
        )


def _say(sentence: str) -> None:
    sys.stderr.write(f"broker_core: {sentence}\n")


if __name__ == "__main__":
    # Otherwise a fault in native code ends the process silently.
    faulthandler.enable()
    sys.exit(main())
