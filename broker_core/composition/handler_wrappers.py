"""Wrappers around request handlers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker_core.processors.wrappers.consume_hooks import ConsumeHooks
from broker_core.processors.wrappers.guard import guard_handlers
from broker_core.processors.wrappers.hooks import BrokerFacts
from broker_core.processors.wrappers.request_hooks import RequestHooks
from broker_core.processors.wrappers.role import by_role
from broker_core.processors.wrappers.send_hooks import SendHooks

if TYPE_CHECKING:
    from broker_core.composition.foundation import Foundation
    from broker_core.processors.wrappers.guard import Gate
    from broker_core.remoting.dispatch import Handler


def wrap_handlers(
    handlers: dict[int, Handler], foundation: Foundation, gate: Gate | None
) -> dict[int, Handler]:
    """Return the table with its handlers wrapped, the first check outermost."""
    extensions, failures = foundation.extensions, foundation.extensions.failures
    handlers = by_role(handlers, foundation.role)
    if extensions.send_message_hooks:
        hooks = SendHooks(
            extensions.send_message_hooks, failures, _facts(foundation), foundation.clock
        )
        handlers = hooks.around(handlers)
    consume_hooks = consume_hooks_of(foundation)
    if consume_hooks is not None:
        handlers = consume_hooks.around(handlers)
    if extensions.rpc_hooks:
        handlers = RequestHooks(extensions.rpc_hooks, failures).around(handlers)
    return handlers if gate is None else guard_handlers(handlers, gate)


def consume_hooks_of(foundation: Foundation) -> ConsumeHooks | None:
    """Return the consume hooks, or None if no extension provides any."""
    extensions = foundation.extensions
    if not extensions.consume_message_hooks:
        return None
    return ConsumeHooks(extensions.consume_message_hooks, extensions.failures, _facts(foundation))


def _facts(foundation: Foundation) -> BrokerFacts:
    return BrokerFacts(foundation.address, foundation.configuration.broker.region_id)
