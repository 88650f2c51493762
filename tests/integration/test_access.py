from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from broker_core.clock import SystemClock
from broker_core.errors import RemotingError
from broker_core.protocol import java_json
from broker_core.protocol.codes import RequestCode, ResponseCode
from broker_core.protocol.signature import Credentials
from broker_core.remoting.client import RemotingClient
from tests.support.broker import running_broker
from tests.support.client import Client, json_body, messages
from tests.support.raw_remoting import RawClient

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from broker_core.broker import Broker

EXCEPTION = "org.apache.rocketmq.acl.common.AclException: "
SECRET = "12345678"
START_MS_MAX = 60_000
"""A start and a request take less than this."""
ACCOUNTS = [
    {"accessKey": "administrator", "secretKey": SECRET, "admin": True},
    {
        "accessKey": "application",
        "secretKey": SECRET,
        "topicPerms": ["T=PUB|SUB"],
        "groupPerms": ["g=SUB"],
    },
]


@pytest.fixture
def accounts(tmp_path: Path) -> Path:
    path = tmp_path / "conf" / "plain_acl.yml"
    path.parent.mkdir()
    path.write_text(yaml.safe_dump({"accounts": ACCOUNTS}))
    return path


@pytest.fixture
async def broker(tmp_path: Path, accounts: Path) -> AsyncIterator[Broker]:
    async with running_broker(tmp_path, aclEnable="true") as running:
        yield running


@asynccontextmanager
async def client_of(broker: Broker, access_key: str | None, secret: str = SECRET) -> Any:
    client = Client(f"127.0.0.1:{broker.listen_port}")
    if access_key is not None:
        client.remoting = RemotingClient(signer=Credentials(access_key, secret))
    try:
        yield client
    finally:
        await client.shutdown()


async def test_rejected_requests_are_counted_in_the_consoles_samples(broker: Broker) -> None:
    async with (
        client_of(broker, "application", "a wrong secret") as guesser,
        client_of(broker, "application") as application,
    ):
        for _ in range(3):
            await guesser.send("T", b"body")
        await application.send("U", b"body")
        await application.send("T", b"body")

    async with client_of(broker, "administrator") as admin:
        sample = json_body(await admin.ask(RequestCode.GET_BROKER_SAMPLE))
    assert sample["counters"]["refused"] == 4


async def test_an_account_sends_and_pulls_only_permitted_topics(broker: Broker) -> None:
    async with client_of(broker, "application") as client:
        sent = await client.send("T", b"body")
        pulled = await client.pull("T")
        other = await client.send("U", b"body")
        foreign = await client.pull("T", group="h")

    assert sent.code == ResponseCode.SUCCESS
    assert [message.body for message in messages(pulled)] == [b"body"]
    assert (other.code, other.remark) == (1, EXCEPTION + "No default permission for topic:U")
    assert (foreign.code, foreign.remark) == (1, EXCEPTION + "No default permission for group:h")


async def test_sign_in_needs_a_known_key(broker: Broker) -> None:
    async with client_of(broker, None) as client:
        stranger = await client.send("T")
        unknown_code = await client.ask(9999)
    async with client_of(broker, "application", "another-secret") as client:
        impostor = await client.send("T")

    assert (stranger.code, stranger.remark) == (1, EXCEPTION + "No accessKey is configured")
    assert unknown_code.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
    assert (impostor.code, impostor.remark) == (
        1,
        EXCEPTION + "Check signature failed for accessKey=application",
    )


async def test_the_vip_port_is_guarded_too(broker: Broker) -> None:
    client = Client(f"127.0.0.1:{broker.listen_port - 2}")
    stranger = await client.send("T")
    await client.shutdown()

    assert stranger.remark == EXCEPTION + "No accessKey is configured"


async def test_accounts_are_administered_over_the_wire(broker: Broker) -> None:
    async with client_of(broker, "administrator") as admin:
        made = await admin.ask(
            RequestCode.UPDATE_AND_CREATE_ACL_CONFIG,
            accessKey="new-account",
            secretKey="new-secret",
            admin="false",
            topicPerms="T=PUB,U=SUB",
        )
        async with client_of(broker, "new-account", "new-secret") as client:
            sent = await client.send("T")
        deleted = await admin.ask(RequestCode.DELETE_ACL_CONFIG, accessKey="new-account")
        again = await admin.ask(RequestCode.DELETE_ACL_CONFIG, accessKey="new-account")
        async with client_of(broker, "new-account", "new-secret") as client:
            gone = await client.send("T")

    assert [made.code, sent.code, deleted.code] == [ResponseCode.SUCCESS] * 3
    assert again.code == ResponseCode.DELETE_ACL_CONFIG_FAILED
    assert gone.remark == EXCEPTION + "No acl config for new-account"


async def test_account_administration_is_logged_with_its_user(
    broker: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    async with client_of(broker, "administrator") as admin:
        await admin.ask(
            RequestCode.UPDATE_AND_CREATE_ACL_CONFIG, accessKey="new-account", secretKey="hush-hush"
        )
        await admin.ask(RequestCode.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG, globalWhiteAddrs="10.0.0.1")
        await admin.ask(RequestCode.DELETE_ACL_CONFIG, accessKey="new-account")
    async with client_of(broker, "application") as client:
        await client.ask(RequestCode.DELETE_ACL_CONFIG, accessKey="administrator")

    by = "access_key=administrator peer=127.0.0.1:"
    assert f"accounts changed by request changes=update of new-account {by}" in caplog.text
    assert (
        f"accounts changed by request changes=the addresses that may do everything {by}"
        in caplog.text
    )
    assert f"accounts changed by request changes=deletion of new-account {by}" in caplog.text
    assert "request refused reason=no administrator code=51" in caplog.text
    assert "hush-hush" not in caplog.text


async def test_an_unauthorized_account_is_answered_with_209(broker: Broker) -> None:
    async with client_of(broker, "administrator") as admin:
        for fields in (
            {"accessKey": "new-account", "secretKey": "short"},
            {"accessKey": "new-account", "secretKey": "new-secret", "topicPerms": "T=ALL"},
            {"accessKey": "new-account", "secretKey": "new-secret", "topicPerms": ""},
        ):
            answer = await admin.ask(RequestCode.UPDATE_AND_CREATE_ACL_CONFIG, **fields)
            assert answer.code == ResponseCode.UPDATE_AND_CREATE_ACL_CONFIG_FAILED
            assert "new-secret" not in (answer.remark or "")


async def test_whitelist_addresses_are_set_over_the_wire(broker: Broker, tmp_path: Path) -> None:
    code = RequestCode.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG
    async with client_of(broker, "administrator") as admin:
        elsewhere = await admin.ask(
            code, globalWhiteAddrs="127.0.0.1", aclFileFullPath=str(tmp_path / "other.yml")
        )
        nonsense = await admin.ask(code, globalWhiteAddrs="nowhere")
        done = await admin.ask(code, globalWhiteAddrs="10.0.0.*, 127.0.0.1")
    async with client_of(broker, None) as client:
        sent = await client.send("anything")

    failed = ResponseCode.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG_FAILED
    assert [elsewhere.code, nonsense.code, done.code] == [failed, failed, 0]
    assert not (tmp_path / "other.yml").exists()
    assert sent.code == ResponseCode.SUCCESS


async def test_accounts_are_shown_without_their_secrets(broker: Broker) -> None:
    async with client_of(broker, "administrator") as admin:
        answer = await admin.ask(RequestCode.GET_BROKER_CLUSTER_ACL_CONFIG)

    assert SECRET.encode() not in answer.body
    assert json_body(answer) == {
        "globalWhiteAddrs": [],
        "plainAccessConfigs": [
            {"accessKey": "administrator", "admin": True, "secretKey": ""},
            {
                "accessKey": "application",
                "admin": False,
                "groupPerms": ["g=SUB"],
                "secretKey": "",
                "topicPerms": ["T=PUB|SUB"],
            },
        ],
    }


async def test_the_versions_of_the_files_are_reported(broker: Broker, accounts: Path) -> None:
    async with client_of(broker, "administrator") as admin:
        answer = await admin.ask(RequestCode.GET_BROKER_CLUSTER_ACL_INFO)

    version = java_json.decode(answer.ext_fields["version"])
    assert version["counter"] == 0
    # For unchanged accounts: the time when this broker loaded them.
    now_ms = SystemClock().now_ms()
    assert now_ms - START_MS_MAX <= version["timestamp"] <= now_ms
    assert java_json.decode(answer.ext_fields["allAclFileVersion"]) == {str(accounts): version}
    assert answer.ext_fields["brokerName"] == "broker-a"
    assert answer.ext_fields["clusterName"] == "DefaultCluster"
    assert answer.ext_fields["brokerAddr"] == broker.foundation.address


async def test_only_administrators_administer(broker: Broker) -> None:
    async with client_of(broker, "application") as client:
        for code in (17, 25, 26, 50, 51, 52, 53, 54, 200, 207, 215, 222, 30021):
            answer = await client.ask(code, b"{}")
            assert answer.remark == (
                f"{EXCEPTION}Need admin permission for request code={code}, but "
                "accessKey=application is not"
            )


async def test_another_file_may_contain_the_accounts(tmp_path: Path) -> None:
    path = tmp_path / "elsewhere.yml"
    path.write_text(yaml.safe_dump({"accounts": ACCOUNTS}))

    async with running_broker(tmp_path, aclEnable="true", aclFile=str(path)) as broker:
        async with client_of(broker, "application") as client:
            sent = await client.send("T")

    assert sent.code == ResponseCode.SUCCESS


async def test_without_access_control_there_is_nothing_to_administer(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker:
        async with client_of(broker, None) as client:
            answers = [await client.ask(code, accessKey="x") for code in (50, 51, 52, 54)]
            white = await client.ask(53, globalWhiteAddrs="*")

    assert [answer.code for answer in answers] == [209, 210, 1, 1]
    assert white.code == 211
    assert "aclEnable=true" in (white.remark or "")


async def test_a_key_change_is_logged_with_its_user_and_both_values(
    broker: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    before = broker.configuration.broker.trace_on
    namesrv = f"127.0.0.1:{broker.configuration.broker.namesrv_listen_port}"
    async with client_of(broker, "administrator") as admin:
        await admin.ask(RequestCode.UPDATE_BROKER_CONFIG, b"traceOn=false\n")
        admin.address = namesrv
        await admin.ask(RequestCode.UPDATE_NAMESRV_CONFIG, b"orderMessageEnable=true\n")
    async with client_of(broker, "application") as client:
        await client.ask(RequestCode.UPDATE_BROKER_CONFIG, b"traceOn=true\n")

    by = "access_key=administrator peer=127.0.0.1:"
    assert before
    assert f"configuration changed by request changes=traceOn=true->false {by}" in caplog.text
    assert (
        f"name server configuration changed changes=orderMessageEnable=false->true {by}"
        in caplog.text
    )
    assert "traceOn=false->true" not in caplog.text
    assert "request refused reason=no administrator code=25" in caplog.text


@pytest.mark.usefixtures("accounts")
async def test_unauthenticated_clients_have_fewer_connections(tmp_path: Path) -> None:
    keys = {"serverStrangerConnectionsMax": "2"}
    async with running_broker(
        tmp_path, clock=None, storage=None, aclEnable="true", **keys
    ) as broker:
        async with client_of(broker, "application") as client:
            assert (await client.send("T")).code == ResponseCode.SUCCESS
            strangers = [RawClient(broker.listen_port) for _ in range(2)]
            answers = [
                await asyncio.to_thread(stranger.ask, RequestCode.GET_BROKER_CONFIG)
                for stranger in strangers
            ]
            # A rejection doesn't create an account.
            assert all("No accessKey" in answer.remark for answer in answers)
            async with client_of(broker, "application") as another:
                with pytest.raises(RemotingError):
                    await another.send("T")
            assert (await client.send("T")).code == ResponseCode.SUCCESS
            silent = [RawClient(broker.listen_port) for _ in range(3)]
            assert await asyncio.to_thread(silent[-1].is_closed_by_peer)
            for each in (*strangers, *silent):
                each.close()


async def test_an_account_can_be_changed_without_its_secret_which_no_answer_contains(
    broker: Broker,
) -> None:
    async with client_of(broker, "administrator") as admin:
        changed = await admin.ask(
            RequestCode.UPDATE_AND_CREATE_ACL_CONFIG,
            accessKey="application",
            topicPerms="U=PUB",
            whole="true",
        )
        white = await admin.ask(
            RequestCode.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG, globalWhiteAddrs="10.0.0.{1,2},10.1.*.*"
        )
        report = await admin.ask(RequestCode.GET_BROKER_CLUSTER_ACL_CONFIG, described="true")
    async with client_of(broker, "application") as client:
        sent = [(await client.send(topic)).code for topic in ("T", "U")]

    assert (changed.code, white.code, sent) == (0, 0, [1, 0])
    assert SECRET.encode() not in report.body
    body = json_body(report)
    (entry,) = [e for e in body["plainAccessConfigs"] if e["accessKey"] == "application"]
    assert (entry["topicPerms"], entry["broker"], entry["file"]) == (["U=PUB"], False, body["file"])
    assert "groupPerms" not in entry
    assert body["globalWhiteAddrsByFile"] == {body["file"]: ["10.0.0.{1,2}", "10.1.*.*"]}


async def test_a_broker_explains_who_may_do_what(broker: Broker) -> None:
    question = {"accessKey": "application", "address": "10.9.9.9", "action": "SUB"}
    async with client_of(broker, "administrator") as admin:
        may = await admin.ask(RequestCode.EXPLAIN_ACCESS, group="g", **question)
        may_not = await admin.ask(RequestCode.EXPLAIN_ACCESS, topic="U", **question)
        nowhere = await admin.ask(
            RequestCode.EXPLAIN_ACCESS, topic="U", **(question | {"address": "home"})
        )
    async with client_of(broker, "application") as client:
        refused = await client.ask(RequestCode.EXPLAIN_ACCESS, topic="U", **question)

    assert json_body(may) == {
        "allowed": True,
        "reason": "permission",
        "rule": "groupPerms: g=SUB",
        "fresh": False,
        "validators": [],
    }
    assert json_body(may_not)["rule"] == "defaultTopicPerm: DENY"
    assert nowhere.remark == "'home' is not an address such as 10.1.2.3"
    assert refused.remark.startswith(EXCEPTION + "Need admin permission")
