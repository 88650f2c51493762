from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from broker_core.access.account import Permission, build_account
from broker_core.access.acl_files import AccessState
from broker_core.access.address_rule import parse_rule
from broker_core.access.authorizer import Authorizer
from broker_core.access.rules import RULES, Need
from broker_core.errors import RequestRefusedError
from broker_core.processors import registry
from broker_core.protocol import java_json
from broker_core.protocol.codes import RequestCode, ResponseCode
from broker_core.protocol.command import RemotingCommand
from broker_core.protocol.fresh_signature import FreshSigner
from broker_core.protocol.signature import Credentials
from tests.support.clock import ManualClock

if TYPE_CHECKING:
    from collections.abc import Sequence

SECRET = "12345678"
PEER = "127.0.0.1:50000"
EXCEPTION = "org.apache.rocketmq.acl.common.AclException: "

ACCOUNTS: list[dict[str, Any]] = [
    {"accessKey": "with-permission", "topicPerms": ["T=PUB|SUB"], "groupPerms": ["G=SUB"]},
    {"accessKey": "without-permission", "topicPerms": ["T=DENY"], "defaultTopicPerm": "PUB|SUB"},
    {"accessKey": "administrator", "admin": True},
    {"accessKey": "white-account", "whiteRemoteAddress": "10.0.0.*"},
    {"accessKey": "tracing-account", "topicPerms": ["T=PUB"]},
    {"accessKey": "broker-account", "broker": True},
]
# Requests that any account may send, as with RocketMQ. Add new codes of this kind here, too.
OPEN = {
    *(28, 29, 30, 31, 32, 33, 37, 21, 201, 202, 203, 204, 208, 223, 300, 303, 305, 308, 315, 317),
    *(324, 325, 328, 343, 345, 351, 352, 907, 30001, 30002, 30022),
}
# Requests that name their object in the body.
BODIES: dict[int, Any] = {
    RequestCode.HEART_BEAT: {
        "clientID": "c",
        "consumerDataSet": [{"groupName": "G", "subscriptionDataSet": [{"topic": "T"}]}],
        "producerDataSet": [{"groupName": "PG"}],
    },
    RequestCode.LOCK_BATCH_MQ: {"consumerGroup": "G", "mqSet": [{"topic": "T", "queueId": 0}]},
    RequestCode.UNLOCK_BATCH_MQ: {"consumerGroup": "G", "mqSet": [{"topic": "T", "queueId": 0}]},
    RequestCode.QUERY_ASSIGNMENT: {"consumerGroup": "G", "topic": "T"},
    RequestCode.BATCH_ACK_MESSAGE: {"acks": [{"c": "G", "t": "T"}]},
    RequestCode.CHECK_CLIENT_CONFIG: {"group": "G", "subscriptionData": {"topic": "T"}},
}
ACTORS = ["no account", "wrong key", "without-permission", "with-permission", "administrator"]


class Anything:
    """A processor placeholder where only its position in the table matters."""

    def __getattr__(self, name: str) -> Any:
        return Anything()


def state(**changes: Any) -> AccessState:
    accounts = [build_account({"secretKey": SECRET, **one}) for one in ACCOUNTS]
    return AccessState(accounts={one.access_key: one for one in accounts}, **changes)


class Accounts:
    def __init__(self, state: AccessState) -> None:
        self.state = state


def an_authorizer(**changes: Any) -> Authorizer:
    return Authorizer(Accounts(state(**changes)), ManualClock())


def a_request(code: int, **more: str) -> RemotingCommand:
    fields = {"topic": "T", "b": "T", "a": "PG", "group": "G", "consumerGroup": "G", **more}
    body = java_json.encode(BODIES[code]) if code in BODIES else b""
    return RemotingCommand.request(code, fields, body)


def signed(access_key: str, request: RemotingCommand, secret: str = SECRET) -> RemotingCommand:
    Credentials(access_key, secret).sign(request)
    return request


def refusal(
    authorizer: Authorizer,
    request: RemotingCommand,
    peer: str = PEER,
    needs: Sequence[Need] | None = None,
) -> str | None:
    """Return the reason for rejecting a request, or the result it led to; None when it passes."""
    try:
        if needs is None:
            authorizer.authorize(request, peer)
        else:
            authorizer.require(request, peer, needs)
    except RequestRefusedError as error:
        refused = error
    else:
        return None
    remark = refused.remark or ""
    assert refused.code == ResponseCode.SYSTEM_ERROR
    assert remark.startswith(EXCEPTION)
    assert SECRET not in remark
    return remark.removeprefix(EXCEPTION)


def expected(code: int, actor: str) -> str | None:
    rule = RULES[code]
    match actor:
        case "no account":
            return "No accessKey is configured"
        case "wrong key":
            return "Check signature failed for accessKey=administrator"
        case "administrator":
            return None
        case _ if rule.is_admin:
            return f"Need admin permission for request code={code}, but accessKey={actor} is not"
        case "without-permission" if code not in OPEN:
            return "No default permission for "
        case _:
            return None


@pytest.mark.parametrize("actor", ACTORS)
@pytest.mark.parametrize("code", sorted(RULES), ids=lambda code: RequestCode(code).name)
def test_every_request_is_answered_to_every_actor_according_to_its_row(
    code: int, actor: str
) -> None:
    request = a_request(code)
    if actor == "wrong key":
        signed("administrator", request, "another-secret")
    elif actor != "no account":
        signed(actor, request)

    found = refusal(an_authorizer(), request)

    message = expected(code, actor)
    if message is None or found is None:
        assert found == message
    else:
        assert found.startswith(message)


def test_every_handled_request_has_a_row() -> None:
    fields: Any = {name: Anything() for name in registry.Processors.__dataclass_fields__}
    table = registry.handlers(registry.Processors(**fields))

    assert set(map(int, table)) <= set(RULES)


def test_a_request_without_a_row_is_rejected() -> None:
    request = signed("administrator", a_request(9999))

    assert refusal(an_authorizer(), request) == "No access rule covers request code=9999"


def test_rows_name_their_subjects() -> None:
    assert {rule.found for rule in RULES.values()} == {
        "",
        "PUB on a topic that is not the cluster's reply topic",
        "PUB on the half message's topic",
        "PUB on the topic of transactions that were given up",
        "SUB on the message's topic",
        "SUB on each event's topic",
    }
    assert {(rule.resource, rule.action) for rule in RULES.values()} == {
        ("topic", "PUB"),
        ("topic", "SUB"),
        ("group", "SUB"),
        ("topic and group", "SUB"),
        ("any", "any"),
        ("broker", "administer"),
        ("broker", "follow"),
        ("name server", "register"),
    }


FOUND = sorted(code for code, rule in RULES.items() if rule.found)


@pytest.mark.parametrize("actor", ["without-permission", "with-permission", "administrator"])
@pytest.mark.parametrize("action", [Permission.PUB, Permission.SUB], ids=["PUB", "SUB"])
@pytest.mark.parametrize("code", FOUND, ids=lambda code: RequestCode(code).name)
def test_requests_need_permission_for_everything_they_lead_to(
    code: int, action: int, actor: str
) -> None:
    request = signed(actor, a_request(code))

    found = refusal(an_authorizer(), request, needs=[Need("T", action)])

    expected = "No default permission for topic:T" if actor == "without-permission" else None
    assert found == expected


def test_a_brokers_account_may_only_register_and_follow() -> None:
    passed = {
        code
        for code, rule in RULES.items()
        if rule.is_admin
        and refusal(an_authorizer(), signed("broker-account", a_request(code))) is None
    }

    assert passed == {
        RequestCode.REGISTER_BROKER,
        RequestCode.UNREGISTER_BROKER,
        RequestCode.QUERY_DATA_VERSION,
        RequestCode.NOTIFY_MIN_BROKER_ID_CHANGE,
        RequestCode.GET_ALL_CONSUMER_OFFSET,
        RequestCode.GET_ALL_DELAY_OFFSET,
        RequestCode.GET_ALL_CONSUMER_FILTER,
        RequestCode.GET_ALL_MESSAGE_REQUEST_MODE,
        RequestCode.GET_BROKER_CLUSTER_ACL_INFO,
        RequestCode.GET_REPLICATION_STATE,
    }


def test_full_permission_includes_what_a_request_leads_to() -> None:
    authorizer = an_authorizer(global_white=(parse_rule("10.0.0.9"),))
    needs = [Need("secret", Permission.SUB)]
    stranger = a_request(RequestCode.VIEW_MESSAGE_BY_ID)

    assert refusal(authorizer, stranger, "10.0.0.9:1", needs) is None
    assert refusal(authorizer, stranger, "10.0.0.8:1", needs) == "No accessKey is configured"
    assert refusal(authorizer, signed("white-account", stranger), "10.0.0.8:1", needs) is None


def test_a_changed_value_or_body_breaks_the_signature() -> None:
    for change in ("field", "body", "added"):
        request = signed("administrator", a_request(RequestCode.UPDATE_AND_CREATE_TOPIC))
        if change == "body":
            request.body += b" "
        else:
            request.ext_fields["topic" if change == "field" else "zzz"] = "other"

        assert refusal(an_authorizer(), request) is not None, change


@pytest.mark.parametrize("signature", ["", "x", "订单", "gDRLxP35PD6fyWkcmOfCCW3uFB0="])
def test_a_made_up_signature_is_rejected(signature: str) -> None:
    request = a_request(28, AccessKey="administrator", Signature=signature)

    assert refusal(an_authorizer(), request) == (
        "Check signature failed for accessKey=administrator"
    )


def test_an_unknown_account_gets_a_short_answer() -> None:
    request = signed("x" * 10_000, a_request(28))

    assert refusal(an_authorizer(), request) == "No acl config for " + "x" * 64


def test_whitelist_addresses_pass_without_a_signature() -> None:
    authorizer = an_authorizer(global_white=(parse_rule("192.168.0.*"),))
    admin = a_request(RequestCode.DELETE_TOPIC_IN_BROKER)
    of_account = a_request(RequestCode.DELETE_TOPIC_IN_BROKER, AccessKey="white-account")

    assert refusal(authorizer, admin, "192.168.0.7:1") is None
    assert refusal(authorizer, admin, "192.168.1.7:1") == "No accessKey is configured"
    assert refusal(authorizer, of_account, "10.0.0.9:1") is None
    assert refusal(authorizer, of_account, "10.0.1.9:1") is not None
    assert refusal(authorizer, admin, "10.0.0.9:1") is not None


def test_anyone_with_an_account_may_send_traces() -> None:
    request = a_request(RequestCode.SEND_MESSAGE_V2, b="RMQ_SYS_TRACE_TOPIC")

    assert refusal(an_authorizer(), signed("tracing-account", request)) is None


def test_returning_a_message_needs_permission_on_the_retry_topics_group() -> None:
    mine = a_request(RequestCode.SEND_MESSAGE_V2, b="%RETRY%G", a="CLIENT_INNER_PRODUCER")
    others = a_request(RequestCode.SEND_MESSAGE_V2, b="%RETRY%H", a="G")

    assert refusal(an_authorizer(), signed("with-permission", mine)) is None
    assert refusal(an_authorizer(), signed("with-permission", others)) == (
        "No default permission for group:H"
    )


def test_an_unreadable_body_is_rejected() -> None:
    request = RemotingCommand.request(RequestCode.HEART_BEAT, {}, b'{"consumerDataSet":7}')

    found = refusal(an_authorizer(), signed("with-permission", request))

    assert found is not None
    assert found.startswith("the request's body cannot be read")


def test_strangers_bodies_are_not_parsed() -> None:
    request = RemotingCommand.request(RequestCode.HEART_BEAT, {}, b"{")

    assert refusal(an_authorizer(), request) == "No accessKey is configured"


def test_rejections_are_counted_and_logged_at_most_five_times_in_ten_seconds(
    caplog: pytest.LogCaptureFixture,
) -> None:
    clock = ManualClock()
    authorizer = Authorizer(Accounts(state()), clock)
    for _ in range(100):
        refusal(authorizer, signed("evil\n\x1b[31mkey", a_request(28)))

    assert authorizer.refused == {"unknown account": 100}
    assert len(caplog.records) == 5
    clock.advance_ms(10_000)
    refusal(authorizer, signed("administrator", a_request(28), "wrong-secret"))

    assert len(caplog.records) == 7
    assert "not_logged=95 refused_in_all=101" in caplog.text
    assert "'evil\\n\\x1b[31mkey'" in caplog.text
    assert "wrong-secret" not in caplog.text
    assert SECRET not in caplog.text


def freshly_signed(clock: ManualClock, access_key: str, code: int = 50) -> RemotingCommand:
    request = a_request(code)
    FreshSigner(Credentials(access_key, SECRET), clock.now_ms).sign(request)
    return request


def test_a_fresh_signature_is_verified_everywhere(caplog: pytest.LogCaptureFixture) -> None:
    clock = ManualClock()
    authorizer = Authorizer(Accounts(state()), clock)
    request = freshly_signed(clock, "administrator")

    assert refusal(authorizer, request) is None
    assert refusal(authorizer, request) == (
        "Check trebuchetSignature failed for accessKey=administrator: the request was received "
        "before; sign each attempt again"
    )
    assert authorizer.refused["not fresh"] == 1
    assert "reason=not fresh code=50 access_key='administrator'" in caplog.text


def test_a_recorded_request_cannot_be_turned_into_another() -> None:
    """RocketMQ's signature covers joined values, so other names and codes keep it valid."""
    clock = ManualClock()
    authorizer = Authorizer(Accounts(state()), clock)
    recorded = a_request(28)
    Credentials("administrator", SECRET).sign(recorded)
    recorded.code = 50
    assert refusal(authorizer, recorded) is None

    for code in (28, 51):
        request = freshly_signed(clock, "administrator")
        request.code = code
        assert refusal(authorizer, request) == (
            "Check trebuchetSignature failed for accessKey=administrator: the signature doesn't "
            "match the request"
        )


@pytest.mark.parametrize("is_marked", [True, False], ids=["account", "administrators"])
def test_an_account_may_require_fresh_signatures(*, is_marked: bool) -> None:
    clock = ManualClock()
    mark = {"requireFreshSignature": "true"} if is_marked else {}
    accounts: list[dict[str, Any]] = [
        {"accessKey": "administrator", "admin": True, "whiteRemoteAddress": "127.0.0.1", **mark},
        {"accessKey": "application", "defaultTopicPerm": "PUB|SUB", "defaultGroupPerm": "SUB"},
    ]
    built = [build_account({"secretKey": SECRET, **one}) for one in accounts]
    authorizer = Authorizer(
        Accounts(AccessState(accounts={one.access_key: one for one in built})),
        clock,
        is_fresh_for_admins=not is_marked,
    )
    ordinary = signed("administrator", a_request(50))

    refused = refusal(authorizer, ordinary)

    assert refused == (
        "accessKey=administrator may only be used with a trebuchetSignature "
        "(requireFreshSignature, adminsRequireFreshSignature)"
    )
    # An allowed address doesn't change that.
    assert refusal(authorizer, a_request(50, AccessKey="administrator")) is not None
    # Renaming the fields keeps RocketMQ's signature valid.
    stripped = freshly_signed(clock, "administrator")
    stripped.ext_fields["trebuchetSignaturf"] = stripped.ext_fields.pop("trebuchetSignature")
    assert refusal(authorizer, stripped) == refused
    assert refusal(authorizer, freshly_signed(clock, "administrator")) is None
    assert refusal(authorizer, signed("application", a_request(RequestCode.PULL_MESSAGE))) is None


@pytest.mark.parametrize("topic", ["T", "%RETRY%G_T"])
@pytest.mark.parametrize(
    ("actor", "passes"), [("with-permission", True), ("without-permission", False)]
)
def test_a_leased_message_needs_its_topic_and_group_wherever_it_is(
    topic: str, actor: str, passes: bool
) -> None:
    requests = [
        RemotingCommand.request(code, {"topic": topic, "consumerGroup": "G"})
        for code in (RequestCode.ACK_MESSAGE, RequestCode.CHANGE_MESSAGE_INVISIBLETIME)
    ]
    body = java_json.encode({"acks": [{"c": "G", "t": topic}]})
    requests.append(RemotingCommand.request(RequestCode.BATCH_ACK_MESSAGE, {}, body))

    for request in requests:
        assert (refusal(an_authorizer(), signed(actor, request)) is None) == passes
