from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from broker_core.errors import AbortProcessError, RequestRefusedError
from broker_core.extensions.failures import Failures
from broker_core.extensions.loading import ActiveExtension
from broker_core.processors.wrappers.consume_hooks import ConsumeHooks
from broker_core.processors.wrappers.hooks import BrokerFacts, command_of
from broker_core.processors.wrappers.request_hooks import RequestHooks
from broker_core.processors.wrappers.send_hooks import SendHooks
from broker_core.protocol.codes import RequestCode
from broker_core.protocol.command import RemotingCommand, answer_template, framed
from tests.support.clock import ManualClock

if TYPE_CHECKING:
    from collections.abc import Callable

    from broker_core.extensions.consume_message_hook import ConsumeMessageContext
    from broker_core.extensions.send_message_hook import SendMessageContext
    from broker_core.remoting.dispatch import Handler

PEER: Any = SimpleNamespace(remote_address="10.0.0.1:5000")
FACTS = BrokerFacts("127.0.0.1:10911", "region-1")
STORED = b'{"msgId":"0A","queueId":"3","queueOffset":"7"}'


class SendHook:
    interface_version = 1

    def __init__(self, error: Exception | None = None) -> None:
        self.error = error
        self.before: list[SendMessageContext] = []
        self.after: list[SendMessageContext] = []

    def send_message_before(self, context: SendMessageContext) -> None:
        self.before.append(context)
        if self.error:
            raise self.error

    def send_message_after(self, context: SendMessageContext) -> None:
        self.after.append(context)
        if self.error:
            raise self.error


class ConsumeHook:
    interface_version = 1

    def __init__(self) -> None:
        self.after: list[ConsumeMessageContext] = []

    def consume_message_before(self, context: ConsumeMessageContext) -> None:
        pass

    def consume_message_after(self, context: ConsumeMessageContext) -> None:
        self.after.append(context)


class RequestHook:
    interface_version = 1

    def __init__(self, error: Exception | None = None) -> None:
        self.error = error
        self.before: list[tuple[str, RemotingCommand]] = []
        self.after: list[RemotingCommand | None] = []

    def do_before_request(self, remote_address: str, request: RemotingCommand) -> None:
        self.before.append((remote_address, request))
        if self.error:
            raise self.error

    def do_after_response(
        self, remote_address: str, _: RemotingCommand, response: RemotingCommand | None
    ) -> None:
        self.after.append(response)
        if response is not None:
            response.ext_fields["seen"] = remote_address


class Stage:
    """One handler with hooks."""

    def __init__(self, clock: ManualClock | None = None) -> None:
        self.clock = clock or ManualClock()
        self.failures = Failures()
        self.served: list[RemotingCommand] = []

    def sends(self, handler: Handler, *hooks: SendHook) -> Handler:
        loaded = tuple(ActiveExtension(f"h{number}", hook) for number, hook in enumerate(hooks))
        table: dict[int, Handler] = {RequestCode.SEND_MESSAGE_V2: handler}
        return SendHooks(loaded, self.failures, FACTS, self.clock).around(table)[310]

    def requests(self, handler: Handler, *hooks: RequestHook) -> Handler:
        loaded = tuple(ActiveExtension(f"h{number}", hook) for number, hook in enumerate(hooks))
        return RequestHooks(loaded, self.failures).around({1: handler})[1]

    def serve(self, request: RemotingCommand, _: object) -> bytes:
        self.served.append(request)
        self.clock.hold_ms(3)
        return framed(answer_template(STORED) % request.opaque)


def v2(**changes: str) -> RemotingCommand:
    header = {"a": "pg", "b": "ns%T", "e": "-1", "g": "17", "i": "KEYS\x01k\x02UNIQ_KEY\x01U"}
    header |= changes
    return RemotingCommand.request(RequestCode.SEND_MESSAGE_V2, header, b"body!")


def refuse(*_: object) -> RemotingCommand:
    raise RequestRefusedError(14, "the disk is full")


@pytest.fixture
def stage() -> Stage:
    return Stage()


def test_a_send_hook_is_called_before_and_after(stage: Stage) -> None:
    hook = SendHook()

    answer = stage.sends(stage.serve, hook)(v2(), PEER)

    assert answer == framed(answer_template(STORED) % 0)
    (context,) = hook.before
    assert hook.after == [context]
    assert (context.request_code, context.producer_group, context.topic) == (310, "pg", "ns%T")
    assert (context.namespace, context.msg_unique_key, context.body_length) == ("ns", "U", 5)
    assert dict(context.properties) == {"KEYS": "k", "UNIQ_KEY": "U"}
    assert (context.born_host, context.born_timestamp) == ("10.0.0.1:5000", 17)
    assert (context.broker_addr, context.broker_region_id) == FACTS
    assert (context.code, context.is_success, context.error_msg) == (0, True, None)
    assert (context.msg_id, context.queue_id, context.queue_offset) == ("0A", 3, 7)
    assert context.cost_ms == pytest.approx(3.0)


def test_the_outcome_is_unknown_before_the_send(stage: Stage) -> None:
    seen: list[object] = []

    class Looking(SendHook):
        def send_message_before(self, context: SendMessageContext) -> None:
            seen.append((context.queue_id, context.code, context.msg_id, context.queue_offset))
            context.notes["mine"] = 1

        def send_message_after(self, context: SendMessageContext) -> None:
            seen.append(context.notes["mine"])

    stage.sends(stage.serve, Looking())(v2(), PEER)

    assert seen == [(-1, -1, None, None), 1]


def test_a_rejecting_hook_hides_the_message_from_later_hooks(stage: Stage) -> None:
    first, refusing, last = SendHook(), SendHook(AbortProcessError(13, "no")), SendHook()

    with pytest.raises(RequestRefusedError) as caught:
        stage.sends(stage.serve, first, refusing, last)(v2(), PEER)

    assert (caught.value.code, caught.value.remark) == (13, "no")
    assert not stage.served
    assert (len(first.before), len(first.after), len(last.before)) == (1, 0, 0)
    assert not stage.failures.counts


def test_a_broken_hook_changes_nothing(stage: Stage) -> None:
    broken, last = SendHook(ValueError("broken")), SendHook()

    answer = stage.sends(stage.serve, broken, last)(v2(), PEER)

    assert answer == framed(answer_template(STORED) % 0)
    assert stage.failures.counts == {"h0": 2}
    assert len(last.after) == 1


def test_a_rejection_after_the_send_is_too_late(stage: Stage) -> None:
    class Late(SendHook):
        def send_message_after(self, _: SendMessageContext) -> None:
            raise AbortProcessError(13, "no")

    assert stage.sends(stage.serve, Late())(v2(), PEER) == framed(answer_template(STORED) % 0)
    assert stage.failures.counts == {"h0": 1}


def test_a_hook_learns_about_rejected_requests(stage: Stage) -> None:
    hook = SendHook()

    with pytest.raises(RequestRefusedError):
        stage.sends(refuse, hook)(v2(e="2"), PEER)

    (context,) = hook.after
    assert (context.code, context.error_msg, context.is_success) == (14, "the disk is full", False)
    assert (context.msg_id, context.queue_id, context.queue_offset) == (None, 2, None)


async def test_a_waiting_answer_is_reported_when_it_arrives(stage: Stage) -> None:
    async def later(request: RemotingCommand, _: object) -> RemotingCommand:
        return request.answer(10, "slow", {"msgId": "0A"})

    hook = SendHook()
    waiting: Any = stage.sends(later, hook)(v2(), PEER)
    assert hook.after == []

    assert (await waiting).code == 10
    assert [(one.code, one.msg_id) for one in hook.after] == [(10, "0A")]


async def test_a_late_rejection_is_also_reported(stage: Stage) -> None:
    async def later(*_: object) -> RemotingCommand:
        return refuse()

    hook = SendHook()
    waiting: Any = stage.sends(later, hook)(v2(), PEER)
    with pytest.raises(RequestRefusedError):
        await waiting

    assert [one.code for one in hook.after] == [14]


def test_the_long_header_can_also_be_read(stage: Stage) -> None:
    hook = SendHook()
    loaded = (ActiveExtension("h", hook),)
    table: dict[int, Handler] = {RequestCode.SEND_MESSAGE: stage.serve}
    request = RemotingCommand.request(
        RequestCode.SEND_MESSAGE,
        {"producerGroup": "pg", "topic": "T", "queueId": "1", "batch": "true"},
    )

    SendHooks(loaded, stage.failures, FACTS, stage.clock).around(table)[10](request, PEER)

    (context,) = hook.before
    assert (context.producer_group, context.topic, context.is_batch) == ("pg", "T", True)


def test_an_unreadable_header_is_left_to_the_handler(stage: Stage) -> None:
    hook = SendHook()

    with pytest.raises(RequestRefusedError):
        stage.sends(refuse, hook)(RemotingCommand.request(310, {"e": "x"}), PEER)

    (context,) = hook.after
    assert (context.topic, context.queue_id, context.born_timestamp) == ("", -1, -1)


def test_only_sends_get_send_hooks(stage: Stage) -> None:
    hooks = SendHooks((ActiveExtension("h", SendHook()),), stage.failures, FACTS, stage.clock)

    assert hooks.around({11: refuse}) == {11: refuse}


@pytest.mark.parametrize(("handler", "code"), [(None, 0), (refuse, 14)])
def test_a_returned_message_is_reported_with_its_outcome(
    stage: Stage, handler: Callable[..., Any] | None, code: int
) -> None:
    hook = ConsumeHook()
    hooks = ConsumeHooks((ActiveExtension("h", hook),), stage.failures, FACTS)
    request = RemotingCommand.request(
        36, {"group": "ns%g", "originTopic": "T", "originMsgId": "0A", "offset": "99"}
    )

    served: Handler = handler or (lambda request, _: request.answer(0))
    wrapped = hooks.around({RequestCode.CONSUMER_SEND_MSG_BACK: served})[36]
    if code:
        with pytest.raises(RequestRefusedError):
            wrapped(request, PEER)
    else:
        wrapped(request, PEER)

    (context,) = hook.after
    assert (context.consumer_group, context.namespace, context.topic) == ("ns%g", "ns", "T")
    assert (context.status, context.success, context.code) == ("RECONSUME_LATER", not code, code)
    assert context.message_ids == {"0A": 99}
    assert (context.client_host, context.store_host) == ("10.0.0.1:5000", "127.0.0.1:10911")


async def test_a_message_that_waits_to_be_durable_is_then_reported(stage: Stage) -> None:
    async def later(request: RemotingCommand, _: object) -> RemotingCommand:
        return request.answer(0)

    hook = ConsumeHook()
    hooks = ConsumeHooks((ActiveExtension("h", hook),), stage.failures, FACTS)
    waiting: Any = hooks.around({RequestCode.CONSUMER_SEND_MSG_BACK: later})[36](
        RemotingCommand.request(36, {"originMsgId": "0A"}), PEER
    )
    assert not hook.after

    assert (await waiting).code == 0
    assert [one.success for one in hook.after] == [True]


def test_a_message_without_its_id_is_not_reported(stage: Stage) -> None:
    hook = ConsumeHook()
    hooks = ConsumeHooks((ActiveExtension("h", hook),), stage.failures, FACTS)
    table: dict[int, Handler] = {
        RequestCode.CONSUMER_SEND_MSG_BACK: lambda request, _: request.answer(0)
    }

    hooks.around(table)[36](RemotingCommand.request(36, {"originMsgId": " "}), PEER)

    assert hook.after == []


def test_an_rpc_hook_sees_and_changes_request_and_answer(stage: Stage) -> None:
    hook = RequestHook()

    request = RemotingCommand.request(1, {"name": "value"})
    answer: Any = stage.requests(stage.serve, hook)(request, PEER)

    assert hook.before == [("10.0.0.1:5000", request)]
    assert (answer.code, answer.ext_fields["msgId"]) == (0, "0A")
    assert answer.ext_fields["seen"] == "10.0.0.1:5000"


def test_an_rpc_hook_sees_a_rejection_as_an_answer(stage: Stage) -> None:
    hook = RequestHook()

    answer: Any = stage.requests(refuse, hook)(RemotingCommand.request(1), PEER)

    assert (answer.code, answer.remark) == (14, "the disk is full")
    assert hook.after == [answer]


async def test_an_rpc_hook_sees_delayed_and_missing_answers(stage: Stage) -> None:
    async def later(*_: object) -> RemotingCommand:
        return refuse()

    hook = RequestHook()
    waiting: Any = stage.requests(later, hook)(RemotingCommand.request(1), PEER)
    assert hook.after == []
    assert (await waiting).code == 14
    assert stage.requests(lambda *_: None, hook)(RemotingCommand.request(1), PEER) is None

    assert [one and one.code for one in hook.after] == [14, None]


def test_an_rpc_hook_rejects(stage: Stage) -> None:
    refusing, last = RequestHook(AbortProcessError(16, "no")), RequestHook()

    with pytest.raises(RequestRefusedError, match="no"):
        stage.requests(stage.serve, refusing, last)(RemotingCommand.request(1), PEER)

    assert not stage.served
    assert not last.before
    assert refusing.after == last.after == []


def test_a_broken_rpc_hook_changes_nothing(stage: Stage) -> None:
    broken, last = RequestHook(ValueError("broken")), RequestHook()

    answer: Any = stage.requests(stage.serve, broken, last)(RemotingCommand.request(1), PEER)

    assert answer.code == 0
    assert len(last.before) == 1
    assert stage.failures.counts == {"h0": 1}


def test_an_encoded_answer_is_read_in_either_header_form() -> None:
    answer = RemotingCommand.request(1).answer(13, "why", {"a": "b"}, b"body")

    for serialize_type in (0, 1):
        answer.serialize_type = serialize_type
        again = command_of(answer.encode())
        assert again is not None
        assert (again.code, again.remark, again.ext_fields) == (13, "why", {"a": "b"})
        assert (again.body, again.serialize_type) == (b"body", serialize_type)
