"""deploy/up started by root: everything runs as another user."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from deploy.settings.options import DEFAULT_USER
from tests.support import raw_remoting
from tests.support.appliance import Appliance, Visitor
from tests.support.checkout import Checkout, open_checkout
from tests.support.processes import command_of, status_of, tree
from tests.support.raw_remoting import RawClient
from tests.support.waiting import until

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [
    pytest.mark.fault,
    pytest.mark.skipif(os.geteuid() != 0, reason="only root can start as another user"),
]
PROCESSES = (
    "deploy.commands.up",
    "supervisord",
    "broker_core",
    "console.serving",
    "worker",
    "beat",
)


@pytest.fixture
def place() -> Iterator[Path]:
    """A directory that other users can enter, unlike pytest's."""
    directory = Path(tempfile.mkdtemp(prefix="trebuchet-user-"))
    directory.chmod(0o755)
    yield directory
    shutil.rmtree(directory)


@pytest.fixture
def checkout(place: Path) -> Checkout:
    return open_checkout(place)


def test_everything_runs_as_the_user_who_owns_everything(place: Path, checkout: Checkout) -> None:
    appliance = Appliance(place / "appliance", TREBUCHET_USER="", **checkout.environment)
    appliance.checkout = checkout.root
    # Files of an earlier appliance run by root, and a trap among them.
    outside = place / "roots-own"
    outside.write_text("root's")
    (appliance.data / "logs").mkdir(parents=True)
    (appliance.data / "appliance.lock").touch()
    (appliance.data / "logs" / "trap").symlink_to(outside)
    appliance.start()
    try:
        user = pwd.getpwnam(DEFAULT_USER)
        assert user.pw_uid != 0
        line = f"Started as root: everything runs as the user {DEFAULT_USER} from here on."
        assert appliance.words.count(line) == 1
        pids = tree(appliance.pid)
        commands = [command_of(pid) for pid in pids]
        for name in PROCESSES:
            assert any(name in command for command in commands), (name, commands)
        for pid in pids:
            status = status_of(pid)
            if status:
                command = command_of(pid)
                assert {*status["Uid"].split()} == {str(user.pw_uid)}, command
                assert {*status["Gid"].split()} == {str(user.pw_gid)}, command
                assert {*status["Groups"].split()} <= {str(user.pw_gid)}, command
                assert int(status["CapEff"], 16) == int(status["CapPrm"], 16) == 0, command
                assert status["NoNewPrivs"] == "1", command
        with RawClient(appliance.port) as client:
            fields = raw_remoting.send_fields("owned")
            assert client.ask(raw_remoting.SEND_MESSAGE, fields, b"body").code == 0
        visitor = Visitor(appliance.url)
        visitor.sign_in()
        until(lambda: "owned" in visitor.read("/topics/"), "the topic on the page")
    finally:
        assert appliance.stop() == 0

    found = [appliance.data, *appliance.data.rglob("*")]
    assert len(found) > 50
    for path in found:
        if not path.is_symlink():
            assert path.lstat().st_uid == user.pw_uid, path
            assert path.lstat().st_mode & 0o002 == 0, path
    assert outside.stat().st_uid == 0
    for path in checkout.root.rglob("*"):
        assert path.lstat().st_uid == 0, path


def test_only_root_can_start_as_another_user(place: Path, checkout: Checkout) -> None:
    daemon = pwd.getpwnam("daemon")

    done = subprocess.run(
        [checkout.root / "deploy" / "up"],
        env={"PATH": os.defpath, "TREBUCHET_USER": "nobody", **checkout.environment},
        cwd=place,
        user=daemon.pw_uid,
        group=daemon.pw_gid,
        extra_groups=[],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
    )

    assert done.returncode == 2
    assert done.stderr == (
        "Only root can start an appliance as another user; leave out the user 'nobody' (--user, "
        "TREBUCHET_USER), or use sudo.\n"
    )
