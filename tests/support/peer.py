"""The real Apache RocketMQ, from its published jars, for comparison."""

from __future__ import annotations

import functools
import subprocess
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from tests.support.broker_process import BrokerProcess
from tests.support.long_timeouts import PATIENT
from tests.support.ports import accepts, free_port
from tests.support.quick_java import MAVEN, OPTIONS, WITHOUT_TLS
from tests.support.waiting import until

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import TracebackType

PACKAGES = ("rocketmq-broker", "rocketmq-namesrv")
MAVEN_SECONDS = 600
START_SECONDS = 240
HEAP = "512m"
# The broker uses JDK internals for direct buffers, which need permission since Java 17.
OPENS = (
    "--add-exports=java.base/jdk.internal.ref=ALL-UNNAMED",
    "--add-exports=java.base/sun.nio.ch=ALL-UNNAMED",
    "--add-opens=java.base/java.nio=ALL-UNNAMED",
    "--add-opens=java.base/sun.nio.ch=ALL-UNNAMED",
    "--add-opens=java.base/java.lang=ALL-UNNAMED",
)
QUICK = (*OPTIONS, WITHOUT_TLS)
LOGBACK = (
    '<configuration><appender name="F" class="ch.qos.logback.core.FileAppender"><file>{file}</file>'
    "<encoder><pattern>%d %p %t - %m%n</pattern></encoder></appender>"
    '<root level="WARN"><appender-ref ref="F"/></root></configuration>\n'
)


class Peer:
    """A name server with a master broker of a published version, on free loopback ports.

    With `namesrvAddr` in its keys, only the broker is started.
    """

    def __init__(self, version: str, directory: Path, **keys: object) -> None:
        self.version = version
        self.java_options: Sequence[str] = QUICK
        """Java options: by default those of tests; measurements set others."""
        self.ends_in_order = False
        """A clean shutdown takes ten seconds and is only needed to read the store afterwards."""
        self.port = free_port()
        self.namesrv_port = free_port()
        self.store = directory / "store"
        self.start_seconds = 0.0
        """How long the broker took until it listened."""
        self._has_namesrv = "namesrvAddr" not in keys
        self._directory = directory
        self._processes: list[subprocess.Popen[bytes]] = []
        conf = directory / "conf"
        conf.mkdir(parents=True)
        for name in ("broker", "namesrv"):
            file = directory / f"{name}.log"
            (conf / f"logback_{name}.xml").write_text(LOGBACK.format(file=file))
        # By default all name servers of a user share one file.
        (directory / "namesrv.properties").write_text(
            f"listenPort={self.namesrv_port}\nkvConfigPath={directory / 'kvConfig.json'}\n"
        )
        table: dict[str, object] = {
            "brokerName": "broker-a",
            "brokerId": 0,
            "brokerClusterName": "DefaultCluster",
            "brokerIP1": "127.0.0.1",
            "brokerIP2": "127.0.0.1",
            "namesrvAddr": self.namesrv,
            "listenPort": self.port,
            # Slaves look for this port; 4.9 supports no other.
            "haListenPort": self.port + 1,
            "storePathRootDir": self.store,
            "storePathCommitLog": self.store / "commitlog",
            **PATIENT,
            **keys,
        }
        text = "".join(f"{key}={value}\n" for key, value in table.items())
        (directory / "broker.properties").write_text(text)

    @property
    def namesrv(self) -> str:
        return f"127.0.0.1:{self.namesrv_port}"

    @property
    def pid(self) -> int:
        """Return the broker's pid."""
        return self._processes[-1].pid

    def __enter__(self) -> Peer:
        jars = classpath(self.version, PACKAGES)
        if self._has_namesrv:
            self._start(jars, "namesrv.NamesrvStartup", "namesrv", self.namesrv_port)
        self._start(jars, "broker.BrokerStartup", "broker", self.port)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for process in reversed(self._processes):
            if not self.ends_in_order:
                process.kill()
            process.terminate()
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def _start(self, jars: str, main: str, name: str, port: int) -> None:
        began = time.monotonic()
        with (self._directory / f"{name}.out").open("wb") as output:
            process = subprocess.Popen(
                [
                    *("java", f"-Xms{HEAP}", f"-Xmx{HEAP}", *self.java_options, *OPENS),
                    *("-cp", jars),
                    f"org.apache.rocketmq.{main}",
                    *("-c", str(self._directory / f"{name}.properties")),
                ],
                env={"ROCKETMQ_HOME": str(self._directory), "PATH": _path()},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
            )
        self._processes.append(process)
        until(
            lambda: process.poll() is not None or accepts(port),
            f"RocketMQ's {name} to listen",
            seconds=START_SECONDS,
        )
        self.start_seconds = time.monotonic() - began
        words = (self._directory / f"{name}.out").read_text(errors="replace")
        assert process.poll() is None, f"RocketMQ's {name} exited during its start:\n{words}"


class OriginalProcess(BrokerProcess):
    """The real broker in the place of one of ours; it can be killed and restarted on its store.

    After a stop, its exit code is the signal's.
    """

    def __init__(self, version: str, directory: Path, **keys: object) -> None:
        store = Path(str(keys.get("storePathRootDir", directory / "store")))
        table = {"brokerIP1": "127.0.0.1", "storePathCommitLog": store / "commitlog", **keys}
        super().__init__(directory, **table)
        self.store = store
        self.main = "broker.BrokerStartup"
        """The main class: this one or `namesrv.NamesrvStartup`."""
        self._jars = classpath(version, PACKAGES)
        self.environment["ROCKETMQ_HOME"] = str(directory)
        conf = directory / "conf"
        conf.mkdir()
        for name in ("broker", "namesrv"):
            file = directory / f"{name}.words"
            (conf / f"logback_{name}.xml").write_text(LOGBACK.format(file=file))

    @property
    def command(self) -> list[str]:
        java = ["java", f"-Xms{HEAP}", f"-Xmx{HEAP}", f"-Duser.home={self.directory}"]
        return [*java, *QUICK, *OPENS, "-cp", self._jars, f"org.apache.rocketmq.{self.main}"]

    @property
    def is_listening(self) -> bool:
        return accepts(self.port)


def _path() -> str:
    return "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def classpath(version: str, packages: tuple[str, ...]) -> str:
    """Return the jars of published RocketMQ packages."""
    return classpath_of(*(f"org.apache.rocketmq:{name}:{version}" for name in packages))


@functools.cache
def classpath_of(*packages: str) -> str:
    """Return the jars of "group:artifact:version", offline if the local repository has them."""
    dependencies = "".join(
        "<dependency><groupId>{}</groupId><artifactId>{}</artifactId>"
        "<version>{}</version></dependency>".format(*each.split(":"))
        for each in packages
    )
    with tempfile.TemporaryDirectory() as directory:
        pom = Path(directory, "pom.xml")
        pom.write_text(
            '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>'
            "<groupId>trebuchet</groupId><artifactId>peer</artifactId><version>1</version>"
            f"<dependencies>{dependencies}</dependencies></project>"
        )
        output = Path(directory, "classpath")
        command = [
            *(*MAVEN, "-Dstyle.color=never", "--file", str(pom)),
            f"-Dmdep.outputFile={output}",
            "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:build-classpath",
        ]
        offline = subprocess.run(
            [*command, "--offline"], capture_output=True, timeout=MAVEN_SECONDS, check=False
        )
        if offline.returncode != 0:
            subprocess.run(command, timeout=MAVEN_SECONDS, check=True)
        return output.read_text().strip()
