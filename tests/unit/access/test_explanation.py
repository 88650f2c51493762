from __future__ import annotations

from typing import Any

import pytest

from broker_core.access.account import build_account
from broker_core.access.acl_files import AccessState
from broker_core.access.address_rule import parse_rule
from broker_core.access.authorizer import Authorizer
from broker_core.access.explanation import ADMIN, parse_need
from broker_core.errors import RequestRefusedError
from broker_core.protocol.codes import RequestCode
from broker_core.protocol.command import RemotingCommand
from broker_core.protocol.fresh_signature import FreshSigner
from broker_core.protocol.signature import Credentials
from tests.support.clock import ManualClock

SECRET = "12345678"
ENTRIES: list[dict[str, Any]] = [
    {"accessKey": "listed-account", "topicPerms": ["T=PUB"], "groupPerms": ["G=SUB", "H=DENY"]},
    {"accessKey": "default-account", "defaultTopicPerm": "SUB", "defaultGroupPerm": "SUB"},
    {"accessKey": "administrator", "admin": True},
    {"accessKey": "bounded-administrator", "admin": True, "topicPerms": ["T=DENY"]},
    {"accessKey": "white-account", "whiteRemoteAddress": "10.0.0.*"},
    {
        "accessKey": "fresh-account",
        "whiteRemoteAddress": "10.0.0.*",
        "requireFreshSignature": True,
        "topicPerms": ["T=PUB|SUB"],
    },
]
HOSTS = ["10.0.0.7", "172.16.3.9", "192.168.1.1", "::1"]
TOPICS = ["T", "U", "RMQ_SYS_TRACE_TOPIC", "SCHEDULE_TOPIC_XXXX"]
QUESTIONS = [
    *(("PUB", topic, None) for topic in TOPICS),
    *(("SUB", topic, None) for topic in TOPICS),
    *(("SUB", None, group) for group in ("G", "H", "I")),
    (ADMIN, None, None),
]
KEYS = [*(each["accessKey"] for each in ENTRIES), "nobody-known", None]


@pytest.fixture
def authorizer() -> Authorizer:
    entries = tuple({"secretKey": SECRET, **each} for each in ENTRIES)
    accounts = {each.access_key: each for each in map(build_account, entries)}
    texts = ("172.16.*.*",)
    state = AccessState(accounts, tuple(map(parse_rule, texts)), texts, entries=entries)

    class Source:
        pass

    source: Any = Source()
    source.state = state
    return Authorizer(source, ManualClock())


def request_for(action: str, topic: str | None, group: str | None) -> RemotingCommand:
    if action == ADMIN:
        return RemotingCommand.request(RequestCode.GET_BROKER_CONFIG)
    if group is not None:
        return RemotingCommand.request(RequestCode.UNREGISTER_CLIENT, {"consumerGroup": group})
    code = RequestCode.SEND_MESSAGE if action == "PUB" else RequestCode.QUERY_MESSAGE
    return RemotingCommand.request(code, {"topic": str(topic)})


def passes(authorizer: Authorizer, request: RemotingCommand, host: str) -> bool:
    try:
        authorizer.authorize(request, f"{host}:50000")
    except RequestRefusedError:
        return False
    return True


@pytest.mark.parametrize("host", HOSTS)
@pytest.mark.parametrize("access_key", KEYS)
def test_the_explanation_matches_the_behaviour(authorizer, access_key, host) -> None:
    clock = ManualClock()
    for question in QUESTIONS:
        request = request_for(*question)
        decision = authorizer.explain(access_key, host, parse_need(*question))
        if access_key is not None:
            credentials = Credentials(access_key, SECRET)
            (FreshSigner(credentials, clock.now_ms) if decision.fresh else credentials).sign(
                request
            )

        assert passes(authorizer, request, host) == decision.allowed, (question, decision)


@pytest.mark.parametrize(
    ("access_key", "host", "question", "rule"),
    [
        ("listed-account", "::1", ("PUB", "T", None), "topicPerms: T=PUB"),
        ("listed-account", "::1", ("SUB", "T", None), "topicPerms: T=PUB"),
        ("listed-account", "::1", ("SUB", None, "H"), "groupPerms: H=DENY"),
        ("default-account", "::1", ("SUB", "U", None), "defaultTopicPerm: SUB"),
        ("listed-account", "::1", ("SUB", None, "I"), "defaultGroupPerm: DENY"),
        ("listed-account", "::1", (ADMIN, None, None), "admin: false"),
        ("administrator", "::1", ("PUB", "U", None), "admin: true"),
        ("white-account", "10.0.0.7", ("PUB", "U", None), "whiteRemoteAddress: 10.0.0.*"),
        (None, "172.16.3.9", (ADMIN, None, None), "globalWhiteRemoteAddresses: 172.16.*.*"),
    ],
)
def test_a_decision_names_the_deciding_line(authorizer, access_key, host, question, rule) -> None:
    assert authorizer.explain(access_key, host, parse_need(*question)).rule == rule


@pytest.mark.parametrize(
    "question", [("DENY", "T", None), ("", "T", None), ("PUB", None, "G"), ("SUB", None, None)]
)
def test_an_invalid_question_is_rejected(question) -> None:
    with pytest.raises(ValueError, match=r"PUB, SUB or ADMIN|SUB is the only|neither"):
        parse_need(*question)
