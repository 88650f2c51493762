"""Loading: creates the extensions that the configuration names.

An extension is an entry point: a class or function that takes an ExtensionContext (a store plug-in
also takes the next port) and returns an object with its kind's interface. Installing a package
doesn't activate anything; the broker loads only the extensions that its configuration names.
"""

from __future__ import annotations

import inspect
import logging
from dataclasses import dataclass, field
from functools import partial
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

from broker_core.config.lists import PLAIN_ACL, names_of
from broker_core.errors import ConfigError
from broker_core.extensions.context import INTERFACE_VERSION, ExtensionContext
from broker_core.extensions.failures import Failures

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from importlib.metadata import EntryPoint

    from broker_core.config.configuration import Configuration
    from broker_core.extensions.access_validator import AccessValidator
    from broker_core.extensions.consume_message_hook import ConsumeMessageHook
    from broker_core.extensions.rpc_hook import RPCHook
    from broker_core.extensions.send_message_hook import SendMessageHook
    from broker_core.extensions.store_plug_in import MessagePort, MessageStorePlugIn
    from broker_core.extensions.transaction_listener import TransactionListener

    StorePlugInFactory = Callable[[MessagePort], MessageStorePlugIn]

logger = logging.getLogger(__name__)

T_co = TypeVar("T_co", covariant=True)


class Kind(NamedTuple):
    """A kind of extension."""

    key: str
    """The configuration key that names the extensions."""
    group: str
    """The entry point group."""
    methods: Mapping[str, int]
    """The methods of the interface -> number of arguments."""
    makes_with: int = 1
    """The number of arguments that the entry point is called with."""


SEND_MESSAGE_HOOKS = Kind(
    "sendMessageHooks",
    "trebuchet.send_message_hooks",
    {"send_message_before": 1, "send_message_after": 1},
)
CONSUME_MESSAGE_HOOKS = Kind(
    "consumeMessageHooks",
    "trebuchet.consume_message_hooks",
    {"consume_message_before": 1, "consume_message_after": 1},
)
RPC_HOOKS = Kind(
    "rpcHooks", "trebuchet.rpc_hooks", {"do_before_request": 2, "do_after_response": 3}
)
ACCESS_VALIDATORS = Kind("accessValidators", "trebuchet.access_validators", {"validate": 2})
TRANSACTION_LISTENERS = Kind(
    "transactionListener",
    "trebuchet.transaction_listeners",
    {"resolve_discard": 1, "send_check": 2},
)
MESSAGE_STORE_PLUG_INS = Kind(
    "messageStorePlugIn",
    "trebuchet.message_store_plug_ins",
    {
        "put_message": 1,
        "put_batch": 1,
        "get_message": 5,
        "look_message": 1,
        "query_message": 5,
    },
    makes_with=2,
)


class ActiveExtension(NamedTuple, Generic[T_co]):
    """An active extension; the label, KEY.NAME, identifies it in logs and counts."""

    label: str
    extension: T_co


@dataclass(frozen=True, slots=True, kw_only=True)
class Extensions:
    """The active extensions, each kind in configuration order. Event loop only after `load`."""

    send_message_hooks: tuple[ActiveExtension[SendMessageHook], ...] = ()
    consume_message_hooks: tuple[ActiveExtension[ConsumeMessageHook], ...] = ()
    rpc_hooks: tuple[ActiveExtension[RPCHook], ...] = ()
    access_validators: tuple[ActiveExtension[AccessValidator | None], ...] = ()
    """None represents plain_acl."""
    transaction_listener: ActiveExtension[TransactionListener] | None = None
    store_plug_ins: tuple[ActiveExtension[StorePlugInFactory], ...] = ()
    failures: Failures = field(default_factory=Failures)
    made: list[tuple[str, str, object]] = field(default_factory=list)
    """Label, package and object of each."""

    def runtime_info(self) -> dict[str, str]:
        """Return rows for GET_BROKER_RUNTIME_INFO; empty without extensions."""
        if not self.made:
            return {}
        counts = self.failures.counts
        return {
            "extensions": ",".join(f"{label}:{package}" for label, package, _ in self.made),
            "extensionFailures": ",".join(f"{label}:{counts[label]}" for label, _, _ in self.made),
        }

    def close(self) -> None:
        """Call the extensions' `close` methods in reverse order; later calls do nothing."""
        while self.made:
            label, _, extension = self.made.pop()
            close = getattr(extension, "close", None)
            if callable(close):
                self.failures.attempt(label, close)


def load(configuration: Configuration, broker_addr: str) -> Extensions:
    """Load the extensions that the configuration names.

    Raises:
        ConfigError: an extension is missing or unsuitable; the text is one sentence.
    """
    loader = _Loader(configuration, broker_addr)
    broker = configuration.broker
    try:
        listeners = loader.all_of(TRANSACTION_LISTENERS, broker.transaction_listener)
        return Extensions(
            send_message_hooks=loader.all_of(SEND_MESSAGE_HOOKS, broker.send_message_hooks),
            consume_message_hooks=loader.all_of(
                CONSUME_MESSAGE_HOOKS, broker.consume_message_hooks
            ),
            rpc_hooks=loader.all_of(RPC_HOOKS, broker.rpc_hooks),
            access_validators=(
                loader.all_of(ACCESS_VALIDATORS, broker.access_validators, built_in=PLAIN_ACL)
                if broker.acl_enable
                else ()
            ),
            transaction_listener=next(iter(listeners), None),
            store_plug_ins=loader.factories_of(
                MESSAGE_STORE_PLUG_INS, broker.message_store_plug_in
            ),
            failures=loader.failures,
            made=loader.made,
        )
    except ConfigError:
        Extensions(failures=loader.failures, made=loader.made).close()
        raise


class _NamedEntryPoint(NamedTuple):
    """A loaded entry point that the configuration names."""

    key: str
    name: str
    package: str
    make: Callable[..., Any]

    def refusal(self, what: str) -> ConfigError:
        wanted = f"extensions that fit, but {self.name!r} of package {self.package} {what}"
        return ConfigError(self.key, self.name, wanted)


class _Loader:
    def __init__(self, configuration: Configuration, broker_addr: str) -> None:
        self.failures = Failures()
        self.made: list[tuple[str, str, object]] = []
        self._configuration = configuration
        self._broker_addr = broker_addr

    def all_of(
        self, kind: Kind, text: str, *, built_in: str | None = None
    ) -> tuple[ActiveExtension[Any], ...]:
        return tuple(
            ActiveExtension(f"{kind.key}.{name}", None)
            if name == built_in
            else self._made(kind, self._find(kind, name, text))
            for name in names_of(text)
        )

    def factories_of(
        self, kind: Kind, text: str
    ) -> tuple[ActiveExtension[StorePlugInFactory], ...]:
        found = [self._find(kind, name, text) for name in names_of(text)]
        return tuple(
            ActiveExtension(f"{kind.key}.{one.name}", partial(self._plug_in, kind, one))
            for one in found
        )

    def _plug_in(
        self, kind: Kind, found: _NamedEntryPoint, store: MessagePort
    ) -> MessageStorePlugIn:
        made: MessageStorePlugIn = self._made(kind, found, store).extension
        return made

    def _find(self, kind: Kind, name: str, text: str) -> _NamedEntryPoint:
        installed = entry_points(group=kind.group)
        points = {package_of(point): point for point in installed if point.name == name}
        if not points:
            names = ", ".join(sorted({point.name for point in installed})) or "none"
            wanted = (
                f"names of installed extensions, but there is no {name!r} in the entry point "
                f"group {kind.group}, which has: {names}"
            )
            raise ConfigError(kind.key, text, wanted)
        if len(points) > 1:
            packages = " and ".join(sorted(points))
            raise ConfigError(
                kind.key, text, f"one extension per name, but {name!r} is in packages {packages}"
            )
        ((package, point),) = points.items()
        try:
            make = point.load()
        except (Exception, SystemExit) as error:
            wanted = f"extensions that can be imported, but {name!r} of package {package} cannot: "
            raise ConfigError(kind.key, text, wanted + _sentence(error)) from error
        found = _NamedEntryPoint(kind.key, name, package, make)
        if not callable(make):
            raise found.refusal(f"is not a class or function but {type(make).__name__}")
        return found

    def _made(self, kind: Kind, found: _NamedEntryPoint, *more: object) -> ActiveExtension[Any]:
        try:
            extension = found.make(self._context(found.name), *more)
        except (Exception, SystemExit) as error:
            raise found.refusal(f"cannot be made: {_sentence(error)}") from error
        label = f"{kind.key}.{found.name}"
        self.made.append((label, found.package, extension))
        version = getattr(extension, "interface_version", None)
        if version != INTERFACE_VERSION:
            raise found.refusal(
                f"has interface_version {version!r}, where this broker has {INTERFACE_VERSION}"
            )
        for method, arguments in kind.methods.items():
            wrong = _mismatch(getattr(extension, method, None), arguments)
            if wrong is not None:
                count = "one argument" if arguments == 1 else f"{arguments} arguments"
                raise found.refusal(f"has {wrong} {method} with {count}")
        logger.info("extension loaded extension=%s package=%s", label, found.package)
        return ActiveExtension(label, extension)

    def _context(self, name: str) -> ExtensionContext:
        broker = self._configuration.broker
        return ExtensionContext(
            name=name,
            options=self._configuration.extension_options.get(name, {}),
            broker_name=broker.broker_name,
            broker_cluster_name=broker.broker_cluster_name,
            broker_addr=self._broker_addr,
            region_id=broker.region_id,
        )


def package_of(point: EntryPoint) -> str:
    """Return the name and version of the package that provides an entry point."""
    return f"{point.dist.name} {point.dist.version}" if point.dist else "of unknown name"


def _mismatch(method: object, arguments: int) -> str | None:
    if not callable(method):
        return "no method"
    if inspect.iscoroutinefunction(method):
        return "a coroutine where a plain method is called:"
    try:
        inspect.signature(method).bind(*range(arguments))
    except TypeError:
        return "another signature than that of"
    except ValueError:
        return None  # A builtin without an inspectable signature.
    return None


def _sentence(error: BaseException) -> str:
    """Return an exception as a clause on one line."""
    return f"{type(error).__name__}: {' '.join(str(error).split())}".removesuffix(": ")
