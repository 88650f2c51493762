from __future__ import annotations

import asyncio
import logging
import time
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from broker_core.access.acl_files import AclFiles
from broker_core.access.address_rule import parts_of
from broker_core.errors import StoreError
from broker_core.message.data_version import DataVersion
from broker_core.storage import FileStorage
from tests.support.clock import ManualClock

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

PLAIN = """
globalWhiteRemoteAddresses:
- 10.10.103.*
accounts:
- accessKey: RocketMQ
  secretKey: 12345678
  whiteRemoteAddress:
  admin: false
  defaultTopicPerm: DENY
  defaultGroupPerm: SUB
  topicPerms:
  - topicA=DENY
  - topicB=PUB|SUB
- accessKey: rocketmq2
  secretKey: 12345678
  admin: true
dataVersion:
- counter: 3
  timestamp: 1600000000000
"""


def another(key: str, secret: str = "12345678") -> str:
    return yaml.safe_dump({"accounts": [{"accessKey": key, "secretKey": secret}]})


async def until(condition: Callable[[], bool]) -> None:
    """Wait for the reading thread, which the manual clock doesn't control."""
    deadline = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < deadline
        await asyncio.to_thread(time.sleep, 0.005)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "conf" / "plain_acl.yml"
    (path.parent / "acl" / "deep").mkdir(parents=True)
    path.write_text(PLAIN)
    path.chmod(0o600)
    return path


@pytest.fixture
def files(path: Path, clock: ManualClock) -> AclFiles:
    files = AclFiles(path, clock, FileStorage())
    files.load()
    return files


def document(path: Path) -> Any:
    return yaml.safe_load(path.read_text())


def account_in(path: Path, key: str) -> Any:
    return next(one for one in document(path)["accounts"] if one["accessKey"] == key)


def test_accounts_and_whitelist_addresses_are_read(files, path):
    state = files.state

    assert set(state.accounts) == {"RocketMQ", "rocketmq2"}
    assert state.accounts["rocketmq2"].is_admin
    assert state.global_white[0](parts_of("10.10.103.7"))
    assert (state.versions[path].counter, state.versions[path].timestamp) == (3, 1600000000000)


async def test_a_file_without_a_version_gets_the_version_of_its_reading(path, clock):
    other = path.parent / "acl" / "a.yml"
    other.write_text(another("account-a"))
    files = AclFiles(path, clock, FileStorage())
    files.load()
    loaded_ms = clock.now_ms()
    assert files.state.versions[other] == DataVersion(counter=0, timestamp=loaded_ms)

    clock.advance_ms(60_000)
    path.write_text(another("account-b"))
    assert await files.refresh()

    assert files.state.versions[other].timestamp == loaded_ms
    assert files.state.versions[path] == DataVersion(counter=0, timestamp=clock.now_ms())


def test_without_any_file_the_version_is_that_of_the_start(tmp_path, clock):
    files = AclFiles(tmp_path / "plain_acl.yml", clock, FileStorage())
    files.load()

    assert files.state.versions[files.path] == DataVersion(timestamp=clock.now_ms())


def test_every_file_below_acl_is_read_and_the_first_to_name_an_account_owns_it(files, path, caplog):
    acl = path.parent / "acl"
    (acl / "a.yml").write_text(another("account-a"))
    (acl / "deep" / "b.yaml").write_text(another("RocketMQ", "another-secret"))
    (acl / "tools.yml").write_text("accessKey: tools\n")
    (acl / "notes.txt").write_text("not yaml: [")
    (acl / "._a.yml").write_bytes(b"\x00\x05\x16\x07 of macOS")
    (acl / "lost+found").mkdir()
    (acl / "lost+found" / "#12.yml").write_text("not yaml: [")

    files.load()

    assert set(files.state.accounts) == {"RocketMQ", "rocketmq2", "account-a"}
    assert files.state.accounts["RocketMQ"].secret_key == "another-secret"
    assert "duplicate account ignored" in caplog.text
    assert "12345678" not in caplog.text


def test_without_files_no_account_is_known_and_that_is_reported(tmp_path, clock, caplog):
    files = AclFiles(tmp_path / "nowhere" / "plain_acl.yml", clock, FileStorage())

    files.load()

    assert files.state.accounts == {}
    assert "all requests are refused" in caplog.text


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("accounts: [{accessKey: x, secretKey: super-secret", "is not YAML at line 1"),
        ("- a\n", "is not a YAML table"),
        ("accounts: {}x", "is not YAML"),
        ("accounts: [7]", "is not a list of accounts"),
        ("accounts: [{accessKey: short, secretKey: super-secret}]", "should longer than 6"),
        ("globalWhiteRemoteAddresses: [nowhere]", "'nowhere'"),
        ("globalWhiteRemoteAddresses: nowhere", "is not a list"),
        ("a: !!python/object/apply:os.system [true]", "is not YAML"),
    ],
)
def test_an_invalid_file_stops_the_start_without_revealing_secrets(path, clock, text, sentence):
    path.write_text(text)

    with pytest.raises(StoreError, match=sentence) as caught:
        AclFiles(path, clock, FileStorage()).load()

    assert "super-secret" not in str(caught.value)


def test_a_file_above_the_limit_is_rejected(path, clock):
    path.write_text("#" * (1 << 20) + "\n")

    with pytest.raises(StoreError, match="more than 1048576 bytes"):
        AclFiles(path, clock, FileStorage()).load()


async def test_a_changed_file_takes_effect_within_five_seconds(files, path, clock):
    files.start()
    await asyncio.sleep(0)
    path.write_text(another("account-x"))

    clock.advance_ms(5_000)
    await until(lambda: "account-x" in files.state.accounts)
    await files.shutdown()

    assert set(files.state.accounts) == {"account-x"}


async def test_a_damaged_file_leaves_the_accounts_unchanged(files, path, caplog):
    before = files.state
    path.write_text("accounts: [")

    assert not await files.refresh()
    assert not await files.refresh()

    assert files.state is before
    assert len([record for record in caplog.records if record.levelno == logging.WARNING]) == 1
    path.write_text(another("account-x"))
    assert await files.refresh()
    assert set(files.state.accounts) == {"account-x"}


async def test_an_unchanged_file_is_not_read_again(files):
    before = files.state

    assert not await files.refresh()

    assert files.state is before


def test_a_new_account_goes_to_the_default_file(files, path, clock):
    files.put_account(
        {
            "accessKey": "new-account",
            "secretKey": "new-secret",
            "admin": False,
            "whiteRemoteAddress": None,
            "topicPerms": ["T=PUB"],
        }
    )

    assert "new-account" in files.state.accounts
    assert account_in(path, "new-account") == {
        "accessKey": "new-account",
        "secretKey": "new-secret",
        "admin": False,
        "topicPerms": ["T=PUB"],
    }
    assert document(path)["dataVersion"] == [{"counter": 4, "timestamp": clock.now_ms()}]
    assert path.stat().st_mode & 0o777 == 0o600


def test_an_account_is_changed_in_its_file_and_keeps_omitted_values(files, path):
    other = path.parent / "acl" / "a.yml"
    other.write_text(another("account-a") + "globalWhiteRemoteAddresses: [127.0.0.1]\n")
    files.load()

    files.put_account(
        {"accessKey": "account-a", "secretKey": "other-secret", "topicPerms": None, "admin": True}
    )

    assert account_in(other, "account-a") == {
        "accessKey": "account-a",
        "secretKey": "other-secret",
        "admin": True,
    }
    assert document(other)["globalWhiteRemoteAddresses"] == ["127.0.0.1"]
    assert document(path) == yaml.safe_load(PLAIN)


@pytest.mark.parametrize(
    "target",
    [
        {"accessKey": "RocketMQ"},
        {"accessKey": "RocketMQ", "secretKey": "short"},
        {"accessKey": "RocketMQ", "secretKey": "12345678", "topicPerms": ["T=ALL"]},
        {"accessKey": "RocketMQ", "secretKey": "12345678", "whiteRemoteAddress": "nowhere"},
    ],
)
def test_an_unauthorized_account_changes_nothing(files, path, target):
    with pytest.raises(ValueError, match=r"should longer|Parse resource|nowhere"):
        files.put_account(target)

    assert path.read_text() == PLAIN


def test_a_change_over_the_wire_does_not_undo_an_edit_on_disk(files, path):
    path.write_text(PLAIN.replace("rocketmq2", "rocketmq3"))

    files.put_account({"accessKey": "new-account", "secretKey": "new-secret"})

    assert set(files.state.accounts) == {"RocketMQ", "rocketmq3", "new-account"}


def test_an_account_is_deleted_once(files, path):
    assert files.delete_account("RocketMQ")
    assert not files.delete_account("RocketMQ")

    assert set(files.state.accounts) == {"rocketmq2"}
    assert [one["accessKey"] for one in document(path)["accounts"]] == ["rocketmq2"]


def test_whitelist_addresses_are_replaced_in_known_files_only(files, path, tmp_path):
    files.set_global_white_addresses(["127.0.0.1", "::1"], None)
    assert document(path)["globalWhiteRemoteAddresses"] == ["127.0.0.1", "::1"]
    assert files.state.global_white_texts == ("127.0.0.1", "::1")

    with pytest.raises(ValueError, match="is not an account file"):
        files.set_global_white_addresses(["127.0.0.1"], tmp_path / "other.yml")
    with pytest.raises(ValueError, match="nowhere"):
        files.set_global_white_addresses(["nowhere"], path)

    assert not (tmp_path / "other.yml").exists()
    assert files.state.global_white_texts == ("127.0.0.1", "::1")


def test_the_first_account_creates_file_and_directory(tmp_path, clock):
    path = tmp_path / "new" / "conf" / "plain_acl.yml"
    files = AclFiles(path, clock, FileStorage())
    files.load()

    files.put_account({"accessKey": "new-account", "secretKey": "new-secret"})

    assert account_in(path, "new-account")["secretKey"] == "new-secret"


def test_a_secret_is_not_in_the_text_of_the_state(files):
    assert "12345678" not in repr(files.state)


async def test_each_change_of_an_account_is_logged_without_its_secret(
    files: AclFiles, path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    assert "accounts changed" not in caplog.text
    files.put_account({"accessKey": "another", "secretKey": "top-secret"})
    files.put_account({"accessKey": "another", "secretKey": "new-secret", "admin": True})
    files.delete_account("another")
    files.set_global_white_addresses(["10.0.0.9"], None)
    await asyncio.to_thread(path.write_text, PLAIN.replace("topicA=DENY", "topicA=PUB"))
    await files.refresh()

    assert [record.getMessage() for record in caplog.records if record.levelname == "WARNING"] == [
        "accounts changed changes=access_key=another added",
        "accounts changed changes=access_key=another changed=admin,secretKey",
        "accounts changed changes=access_key=another removed",
        "accounts changed changes=globalWhiteRemoteAddresses=10.0.0.9",
        "accounts changed changes=access_key=RocketMQ changed=topicPerms",
        "accounts changed changes=globalWhiteRemoteAddresses=10.10.103.*",
    ]
    assert "secret" not in caplog.text.replace("secretKey", "")


def warnings_of(caplog: pytest.LogCaptureFixture) -> list[str]:
    found = [one.getMessage() for one in caplog.records if one.levelno == logging.WARNING]
    return [text for text in found if "contains secrets" in text]


@pytest.mark.parametrize("mode", [0o644, 0o640, 0o602])
def test_a_file_readable_by_others_is_one_warning_at_the_start(path, clock, caplog, mode):
    path.chmod(mode)

    AclFiles(path, clock, FileStorage()).load()

    assert len(warnings_of(caplog)) == 1
    assert str(path) in warnings_of(caplog)[0]
    assert f"{mode:04o}" in warnings_of(caplog)[0]
    assert f"chmod 600 {path}" in warnings_of(caplog)[0]


async def test_a_file_readable_by_others_is_warned_about_again_after_a_reload(path, clock, caplog):
    path.chmod(0o644)
    files = AclFiles(path, clock, FileStorage())
    files.load()
    assert not await files.refresh()
    assert len(warnings_of(caplog)) == 1

    path.write_text(another("account-b"))
    assert await files.refresh()
    assert len(warnings_of(caplog)) == 2

    path.chmod(0o600)
    assert not await files.refresh()
    assert len(warnings_of(caplog)) == 2
    # The text is unchanged; the file being readable again is the change.
    path.chmod(0o644)
    assert not await files.refresh()
    assert len(warnings_of(caplog)) == 3


def test_a_private_file_is_not_a_warning(path, clock, caplog):
    path.chmod(0o600)

    AclFiles(path, clock, FileStorage()).load()

    assert not warnings_of(caplog)


def test_a_complete_update_keeps_the_secret_and_removes_missing_values(files, path):
    files.load()
    files.put_account(
        {"accessKey": "RocketMQ", "admin": False, "groupPerms": ["g=SUB"]}, is_whole=True
    )

    (entry, _other) = yaml.safe_load(path.read_text())["accounts"]
    assert entry == {
        "accessKey": "RocketMQ",
        "secretKey": "12345678",
        "admin": False,
        "groupPerms": ["g=SUB"],
    }
    with pytest.raises(ValueError, match="secretKey"):
        files.put_account({"accessKey": "a-new-account"}, is_whole=True)
