"""A fresh install's exposure to anonymous clients: listening sockets and sign-in."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
import urllib.error
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from broker_core.protocol.codes import RequestCode, ResponseCode
from broker_core.protocol.command import RemotingCommand
from broker_core.protocol.signature import Credentials
from broker_core.remoting.client import RemotingClient
from tests.support.appliance import Appliance, Visitor
from tests.support.broker import running_broker
from tests.support.broker_process import ROOT
from tests.support.client import Client
from tests.support.default_credentials import PAIRS
from tests.support.listeners import descendants, listening
from tests.support.raw_remoting import topic_fields

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

PROCESSES = {"redis", "broker", "web", "worker", "beat"}
REFUSALS = {400, 403, 429}
MATCHING = """
import django
django.setup()
from django.contrib.auth import get_user_model
from tests.support.default_credentials import PAIRS
passwords = sorted({password for _, password in PAIRS} | {name for name, _ in PAIRS})
users = get_user_model().objects.all()
print([
    (user.get_username(), [each for each in passwords if user.check_password(each)])
    for user in users
])
"""


@pytest.fixture(scope="module")
def appliance(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Appliance]:
    """An appliance after a first start: no data, and no chosen password."""
    made = Appliance(tmp_path_factory.mktemp("fresh"), TREBUCHET_ADMIN_PASSWORD="")
    made.start()
    yield made
    assert made.stop() == 0


@pytest.mark.fault
def test_it_only_listens_at_the_stated_address(appliance: Appliance) -> None:
    running = {name: appliance.pid_of(name) for name in PROCESSES}

    found = listening(appliance.pid)

    assert set(running.values()) <= set(descendants(appliance.pid)), "not all were looked at"
    sockets = {line for line in found if line.startswith("unix ")}
    assert found - sockets == {
        f"tcp 127.0.0.1:{appliance.port}",
        f"tcp 127.0.0.1:{appliance.port + 1}",
        # The VIP port.
        f"tcp 127.0.0.1:{appliance.port - 2}",
        f"tcp 127.0.0.1:{appliance.grpc_port}",
        f"tcp 127.0.0.1:{appliance.namesrv_port}",
        f"tcp 127.0.0.1:{appliance.web_port}",
    }
    # Redis's and the supervisor's, in a directory private to this user; see test_up.py.
    names = {re.sub(r"\.\d+$", "", line.rpartition("/")[2]) for line in sockets}
    assert names == {"redis.sock", "supervisor.sock"}


@pytest.mark.fault
def test_no_default_credentials_sign_in(appliance: Appliance) -> None:
    printed = re.search(r"Administrator (\S+), password (\S+)", appliance.words)
    assert printed is not None
    name, password = printed.groups()
    known = Visitor(appliance.url)
    # First, because failed attempts make the console slow to answer.
    known.sign_in(name, password)

    signed_in = [pair for pair in PAIRS if gets_in(appliance.url, *pair)]

    assert signed_in == []
    assert "sign-out" in known.read("/")
    # After some failures the console rejects without checking, so compare the hashes directly.
    assert matching(appliance) == [(name, [])]


def gets_in(url: str, name: str, password: str) -> bool:
    visitor = Visitor(url)
    try:
        visitor.sign_in(name, password)
    except urllib.error.HTTPError as error:
        if error.code not in REFUSALS:
            raise
    return "sign-out" in visitor.read("/")


def matching(appliance: Appliance) -> list[tuple[str, list[str]]]:
    """Return each console account with those of its passwords that are in the list."""
    done = subprocess.run(
        [sys.executable, "-c", MATCHING],
        cwd=ROOT,
        env={
            **os.environ,
            "DJANGO_SETTINGS_MODULE": "console.settings",
            "TREBUCHET_DATA": str(appliance.data),
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found: list[tuple[str, list[str]]] = ast.literal_eval(done.stdout)
    return found


@pytest.mark.parametrize("has_account", [False, True])
async def test_no_default_credentials_are_a_broker_account(
    tmp_path: Path, *, has_account: bool
) -> None:
    honest = Credentials("honest-account", "its own secret")
    if has_account:
        file = tmp_path / "conf" / "plain_acl.yml"
        file.parent.mkdir()
        account = {"accessKey": honest.access_key, "secretKey": honest.secret_key, "admin": True}
        file.write_text(yaml.safe_dump({"accounts": [account]}))
        file.chmod(0o600)
    async with running_broker(tmp_path, aclEnable="true") as broker:
        pairs = [*PAIRS, (honest.access_key, honest.secret_key)]
        address = f"127.0.0.1:{broker.listen_port}"
        namesrv = f"127.0.0.1:{broker.configuration.broker.namesrv_listen_port}"
        allowed = [pair for pair in pairs if await is_allowed(address, namesrv, *pair)]

    assert allowed == ([(honest.access_key, honest.secret_key)] if has_account else [])


async def is_allowed(address: str, namesrv: str, access_key: str, secret_key: str) -> bool:
    """Return whether any request that needs an account succeeds for this one."""
    remoting = RemotingClient(signer=Credentials(access_key, secret_key))
    client = Client(address)
    client.remoting = remoting
    fields = {"namespace": "N", "key": access_key, "value": "V"}
    topic: dict[str, Any] = dict(topic_fields("Made"))
    codes = [
        (await client.ask(RequestCode.GET_BROKER_CONFIG)).code,
        (await client.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, **topic)).code,
        (await client.send("T", b"x")).code,
        (
            await remoting.request(
                namesrv, RemotingCommand.request(RequestCode.PUT_KV_CONFIG, fields), 60.0
            )
        ).code,
    ]
    await client.shutdown()
    done = {code == ResponseCode.SUCCESS for code in codes}
    assert len(done) == 1, codes
    return done.pop()
