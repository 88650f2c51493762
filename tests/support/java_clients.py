"""Our Java programs based on a published RocketMQ client."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

from tests.support.quick_java import COMPILER, MAVEN, OPTIONS

if TYPE_CHECKING:
    from collections.abc import Sequence

SOURCES = Path(__file__).resolve().parent.parent / "interop" / "java"
MAVEN_SECONDS = 600
COMPILE_SECONDS = 120
NEEDED = {
    "java": "openjdk-17-jdk-headless",
    "javac": "openjdk-17-jdk-headless",
    "mvn": "maven",
}


def missing() -> list[str]:
    """Return the missing Debian packages that these programs need."""
    return sorted({package for name, package in NEEDED.items() if shutil.which(name) is None})


class JavaClients:
    """The programs, compiled against a version of the client."""

    def __init__(self, version: str, directory: Path) -> None:
        self.version = version
        self._directory = directory
        self._classpath = ""

    def build(self) -> None:
        """Resolve the jars, offline if the local repository has them all, and compile."""
        file = self._directory / "classpath"
        maven = [
            *(*MAVEN, "-Dstyle.color=never"),
            *("--file", str(SOURCES / "pom.xml")),
            f"-Drocketmq.version={self.version}",
            f"-Dmdep.outputFile={file}",
            "dependency:build-classpath",
        ]
        offline = subprocess.run(
            [*maven, "--offline"], capture_output=True, timeout=MAVEN_SECONDS, check=False
        )
        if offline.returncode != 0:
            subprocess.run(maven, timeout=MAVEN_SECONDS, check=True)
        jars = file.read_text().strip()
        classes = self._directory / "classes"
        sources = sorted(str(path) for path in (SOURCES / "src").glob("*.java"))
        subprocess.run(
            [*COMPILER, "-d", str(classes), "-cp", jars, *sources],
            timeout=COMPILE_SECONDS,
            check=True,
        )
        self._classpath = f"{classes}:{jars}"

    def start(
        self,
        program: str,
        *arguments: object,
        stdin: int = subprocess.DEVNULL,
        prefix: Sequence[str] = (),
    ) -> subprocess.Popen[str]:
        """Start a program; its output goes to the pipe, its errors to the directory.

        `prefix` is a command prefix such as `ip netns exec NAME`.
        """
        with (self._directory / f"{program}.err").open("ab") as errors:
            return subprocess.Popen(
                [
                    *prefix,
                    *("java", "-Xmx256m", *OPTIONS),
                    f"-Duser.home={self._directory}",
                    *("-cp", self._classpath, "Run", program, *map(str, arguments)),
                ],
                stdin=stdin,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )

    def run(self, program: str, *arguments: object, seconds: float = 300) -> list[list[str]]:
        """Run a program to its end; return its lines, each split at spaces.

        Raises:
            AssertionError: its exit code isn't 0.
        """
        process = self.start(program, *arguments)
        try:
            output, _ = process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
            raise
        errors = (self._directory / f"{program}.err").read_text(errors="replace")[-4_000:]
        assert process.returncode == 0, (
            f"{program} of {self.version} failed:\n{output[-2_000:]}\n{errors}"
        )
        return [line.split() for line in output.splitlines() if line.strip()]

    def send(
        self, namesrv: str, topic: str, *, modes: str, count: int, tags: str, prefix: str
    ) -> list[list[str]]:
        """Send `count` messages in each mode; return the lines of acknowledged ones."""
        group = f"{prefix}-producer"
        lines = self.run("SendMessages", namesrv, topic, group, modes, count, tags, prefix)
        return [line[1:] for line in lines if line[0] == "sent"]

    def receive(
        self,
        namesrv: str,
        topic: str,
        group: str,
        *,
        expression: str = "*",
        count: int,
        quiet_ms: int = 2_000,
        seconds: int = 150,
    ) -> list[list[str]]:
        """Receive `count` messages, then wait until it's quiet; return the deliveries' lines."""
        lines = self.run(
            *("ReceiveMessages", namesrv, topic, group, expression, count, quiet_ms, seconds),
            seconds=seconds + 30,
        )
        return [line[1:] for line in lines if line[0] == "received"]
