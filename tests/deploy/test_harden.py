"""The units that deploy/harden prints: their sandbox and contents, and that they run."""

from __future__ import annotations

import ctypes
import errno
import os
import pwd
import re
import shlex
import shutil
import stat
import subprocess
import tempfile
import urllib.request
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from deploy.install.requirements import ROOT
from deploy.processes.programs import Program
from deploy.processes.units import Place, service
from tests.support import raw_remoting
from tests.support.checkout import Checkout, open_checkout
from tests.support.ports import accepts, free_port
from tests.support.raw_remoting import RawClient
from tests.support.waiting import until

if TYPE_CHECKING:
    from collections.abc import Iterator

EXPOSURE_MAX = 19
"""Tenths: systemd-analyze rejects higher values."""
PR_SET_NO_NEW_PRIVS, PR_SET_MDWE = 38, 65
SERVICES = {"redis", "broker", "web", "collector", "pipeline", "worker", "beat"}
USER = "daemon" if os.geteuid() == 0 else pwd.getpwuid(os.geteuid()).pw_name


@pytest.fixture
def place() -> Iterator[Path]:
    """A directory that the units' user can enter, unlike pytest's."""
    directory = Path(tempfile.mkdtemp(prefix="trebuchet-units-"))
    directory.chmod(0o755)
    yield directory
    shutil.rmtree(directory)


def harden(
    directory: Path, *arguments: str, root: Path = ROOT, **environment: str
) -> tuple[int, str]:
    """Run the command of a checkout; return its exit code and output."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("TREBUCHET_")}
    done = subprocess.run(
        [root / "deploy" / "harden", *arguments],
        env={
            **kept,
            "TREBUCHET_DATA": str(directory / "data"),
            "TREBUCHET_USER": USER,
            **environment,
        },
        cwd="/",
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    return done.returncode, done.stdout


def made(
    directory: Path, *arguments: str, root: Path = ROOT, **environment: str
) -> dict[str, Path]:
    """Write the units; return their files by the processes' names."""
    target = directory / "units"
    target.mkdir(exist_ok=True)
    code, text = harden(directory, "--to", str(target), *arguments, root=root, **environment)
    assert code == 0, text
    return {re.sub(r"trebuchet-|\.service", "", file.name): file for file in target.iterdir()}


def settings(file: Path, key: str) -> list[str]:
    return re.findall(rf"^{key}=(.*)$", file.read_text(), re.MULTILINE)


def analyze(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    program = shutil.which("systemd-analyze")
    if program is None:
        pytest.skip("systemd-analyze is missing (deploy/test all --install adds it)")
    return subprocess.run(
        [program, "--no-pager", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def configuration(directory: Path, **keys: object) -> Path:
    file = directory / "given.conf"
    table = {"storePathRootDir": directory / "data" / "store", **keys}
    file.write_text("".join(f"{key}={value}\n" for key, value in table.items()))
    file.chmod(0o644)
    return file


@pytest.mark.parametrize("is_public", [False, True], ids=["loopback", "public"])
def test_each_unit_is_valid_and_has_a_low_exposure(place: Path, is_public: bool) -> None:
    address = "0.0.0.0" if is_public else "127.0.0.1"
    file = configuration(place, bindAddress=address, brokerIP1="127.0.0.1")
    web = f"{address}:{443 if is_public else 8000}"

    units = made(place, "-c", str(file), TREBUCHET_WEB=web)

    assert units.keys() == SERVICES | {"trebuchet.target"}
    verified = analyze("verify", *units.values())
    assert verified.returncode == 0, verified.stdout
    assert verified.stdout == ""
    for name in SERVICES:
        done = analyze("security", "--offline=true", f"--threshold={EXPOSURE_MAX}", units[name])
        assert done.returncode == 0, f"{name}: {done.stdout}"


def test_a_unit_with_a_weaker_sandbox_is_rejected(place: Path) -> None:
    unit = made(place)["broker"]
    kept = [line for line in unit.read_text().splitlines() if not line.startswith("Protect")]
    unit.write_text("\n".join(kept))

    done = analyze("security", "--offline=true", f"--threshold={EXPOSURE_MAX}", unit)

    assert done.returncode != 0


def test_only_java_may_run_what_it_writes(place: Path) -> None:
    units = made(place)

    for name in SERVICES:
        expected = ["no"] if name == "pipeline" else ["yes"]
        assert settings(units[name], "MemoryDenyWriteExecute") == expected
        assert settings(units[name], "NoNewPrivileges") == ["yes"]
        assert settings(units[name], "User") == [USER]


def test_a_public_listener_is_not_cut_off_and_may_use_its_port(place: Path) -> None:
    file = configuration(place, bindAddress="0.0.0.0", brokerIP1="127.0.0.1")
    units = made(place, "-c", str(file), TREBUCHET_WEB="0.0.0.0:443")

    assert settings(units["broker"], "IPAddressDeny") == []
    assert settings(units["web"], "IPAddressDeny") == []
    assert settings(units["web"], "AmbientCapabilities") == ["CAP_NET_BIND_SERVICE"]
    assert settings(units["web"], "PrivateUsers") == []
    assert settings(units["worker"], "IPAddressDeny") == ["any"]
    assert settings(units["broker"], "CapabilityBoundingSet") == [""]


def test_secrets_reach_the_console_only_in_files(place: Path) -> None:
    file = place / "session key"
    file.write_text("s3cret")
    units = made(place, TREBUCHET_SECRET_KEY_FILE=str(file))

    for name in SERVICES - {"redis", "broker"}:
        assert settings(units[name], "LoadCredential") == [f"trebuchet_secret_key:{file}"]
        assert '"TREBUCHET_SECRET_KEY_FILE=%d/trebuchet_secret_key"' in settings(
            units[name], "Environment"
        )
    for name in ("redis", "broker"):
        assert "secret" not in units[name].read_text()


def test_console_settings_reach_its_processes(place: Path) -> None:
    unit = made(
        place,
        TREBUCHET_ALLOWED_HOSTS="console.example",
        JAVA_HOME="/opt/java",
        TREBUCHET_ADMIN="chief",
        SOMEBODYS_TOKEN="s3cret",
    )["worker"]

    variables = settings(unit, "Environment")
    assert '"TREBUCHET_ALLOWED_HOSTS=console.example"' in variables
    assert '"JAVA_HOME=/opt/java"' in variables
    assert f'"TREBUCHET_DATA={place / "data"}"' in variables
    assert not [one for one in variables if "chief" in one or "s3cret" in one or "_USER" in one]


def test_settings_for_one_process_are_in_its_unit_and_its_command_is_python(
    place: Path,
) -> None:
    units = made(place)

    heaps = {name: settings(unit, "Environment") for name, unit in units.items()}
    report = {name for name, found in heaps.items() if '"MALLOC_ARENA_MAX=1"' in found}
    assert report == {"web", "pipeline"}
    assert '"ARROW_DEFAULT_MEMORY_POOL=system"' in heaps["pipeline"]
    (prepare,) = settings(units["web"], "ExecStartPre")
    (serve,) = settings(units["web"], "ExecStart")
    assert shlex.split(prepare)[0] == shlex.split(serve)[0]
    assert "python" in Path(shlex.split(serve)[0]).name


@pytest.mark.parametrize(
    ("environment", "word"),
    [
        ({"TREBUCHET_SECRET_KEY": 60 * "s3cret"}, "TREBUCHET_SECRET_KEY_FILE"),
        ({"DATABASE_URL": "postgres://a:s3cret@b/c"}, "DATABASE_URL_FILE"),
        ({"TREBUCHET_REDIS_URL": "redis://:s3cret@127.0.0.1/0"}, "TREBUCHET_REDIS_URL_FILE"),
        ({"TREBUCHET_USER": "root"}, "TREBUCHET_USER"),
        ({"TREBUCHET_WEB": "nowhere"}, "TREBUCHET_WEB"),
    ],
)
def test_an_invalid_setting_is_reported_in_one_sentence(
    place: Path, environment: dict[str, str], word: str
) -> None:
    code, text = harden(place, root=ROOT, **environment)

    assert code == 2
    assert len(text.splitlines()) == 1
    assert word in text
    assert "s3cret" not in text


def test_a_configuration_without_a_store_is_reported_in_one_sentence(place: Path) -> None:
    (place / "given.conf").write_text("listenPort=10911\n")

    code, text = harden(place, "-c", str(place / "given.conf"))

    assert code == 2
    assert "storePathRootDir=" in text


def test_the_units_are_printed_as_written_with_the_command_to_install_them(place: Path) -> None:
    units = made(place)

    code, text = harden(place)

    assert code == 0
    for file in units.values():
        assert f"# /etc/systemd/system/{file.name}\n{file.read_text()}" in text
        assert stat.S_IMODE(file.stat().st_mode) == 0o644
    head = text.partition("\n\n")[0].splitlines()
    assert all(line.startswith("# ") for line in head)
    assert "systemctl enable --now trebuchet.target" in head[-1]


def test_a_path_with_special_characters_is_one_word(place: Path) -> None:
    file = configuration(place)
    odd = file.rename(place / 'a "100%" $HOME.conf')

    units = made(place, "-c", str(odd))

    (command,) = settings(units["broker"], "ExecStart")
    assert command.endswith(f'"{place}/a \\"100%%\\" $$HOME.conf"')
    verified = analyze("verify", units["broker"])
    assert verified.stdout == ""


def test_only_its_own_home_is_visible(tmp_path: Path, place: Path) -> None:
    home = Path("/home/somebody/trebuchet")
    unit = units_of(home)

    assert "ProtectHome=tmpfs\n" in unit
    assert f'BindPaths="{home / "data"}"\n' in unit
    assert f'BindReadOnlyPaths="{home / "broker.conf"}"\n' in unit
    assert "ReadWritePaths" not in unit
    elsewhere = units_of(Path("/srv/trebuchet"))
    assert "ProtectHome=yes\n" in elsewhere
    assert 'ReadWritePaths="/srv/trebuchet/data"\n' in elsewhere


def units_of(base: Path) -> str:
    program = Program("broker", ["python"], priority=1, stop_seconds=1)
    data = base / "data"
    place = Place(
        user="trebuchet",
        reads=[base / "broker.conf"],
        writes=[data, data / "store", data / "store" / "commitlog"],
        variables={},
        credentials={},
        listens={},
        is_remote=False,
    )
    return service(program, [], place)


class Unit:
    """A unit's process, started by hand with its command, environment and user if possible."""

    def __init__(self, file: Path, log: Path, checkout: Checkout) -> None:
        self._file = file
        self._checkout = checkout
        self.log = log
        self._process: subprocess.Popen[bytes] | None = None

    def run(self, key: str) -> None:
        """Run the command of ExecStartPre to its end."""
        assert self._start(key).wait(300) == 0, self.log.read_text()

    def start(self) -> None:
        self._process = self._start("ExecStart")

    def stop(self) -> None:
        if self._process is not None:
            self._process.terminate()
            self._process.wait(120)

    @property
    def words(self) -> str:
        return self.log.read_text()

    def _start(self, key: str) -> subprocess.Popen[bytes]:
        (command,) = settings(self._file, key)
        pairs = [
            shlex.split(text)[0].partition("=") for text in settings(self._file, "Environment")
        ]
        user = pwd.getpwnam(settings(self._file, "User")[0])
        becomes: dict[str, Any] = {}
        if os.geteuid() == 0:
            becomes = {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}
        may_not_write_code = settings(self._file, "MemoryDenyWriteExecute") == ["yes"]

        def give_up() -> None:
            libc = ctypes.CDLL(None, use_errno=True)
            assert libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
            if may_not_write_code and libc.prctl(PR_SET_MDWE, 1, 0, 0, 0) != 0:
                # Kernels before 6.3 don't support it.
                assert ctypes.get_errno() == errno.EINVAL

        with self.log.open("ab") as log:
            return subprocess.Popen(
                [word.replace("%%", "%").replace("$$", "$") for word in shlex.split(command)],
                cwd=settings(self._file, "WorkingDirectory")[0],
                # systemd only sets a path and a home.
                env={"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": user.pw_dir}
                | {name: value for name, _, value in pairs}
                | self._checkout.environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                umask=0o077,
                preexec_fn=give_up,
                **becomes,
            )


@pytest.mark.fault
def test_broker_and_console_run_according_to_their_units(place: Path) -> None:
    port, namesrv, web_port = free_port(), free_port(), free_port()
    file = configuration(place, listenPort=port, namesrvListenPort=namesrv, grpcListenPort=0)
    checkout = open_checkout(place)
    web_address = f"127.0.0.1:{web_port}"
    units = made(
        place,
        *("-c", str(file)),
        root=checkout.root,
        TREBUCHET_WEB=web_address,
        **checkout.environment,
    )
    data = place / "data"
    (data / "redis").mkdir(parents=True, exist_ok=True)
    owner = pwd.getpwnam(USER)
    for path in [data, *data.rglob("*")]:
        os.chown(path, owner.pw_uid, owner.pw_gid)
    broker = Unit(units["broker"], place / "broker.log", checkout)
    web = Unit(units["web"], place / "web.log", checkout)
    with ExitStack() as started:
        broker.start()
        started.callback(broker.stop)
        until(lambda: accepts(port), "the broker to listen", seconds=120)
        with RawClient(port) as client:
            fields = raw_remoting.send_fields("unit")
            assert client.ask(raw_remoting.SEND_MESSAGE, fields, b"body").code == 0
        web.run("ExecStartPre")
        # No account was created, so no password is in the log.
        assert "password" not in web.words
        web.start()
        started.callback(web.stop)
        until(lambda: accepts(web_port), "the console to listen", seconds=120)
        url = f"http://127.0.0.1:{web_port}/accounts/sign-in/"
        with urllib.request.urlopen(url, timeout=60) as answer:
            assert answer.status == 200

    for path in [data, *data.rglob("*")]:
        assert path.lstat().st_uid == owner.pw_uid, path
