"""mqadmin of a published version, all commands in one JVM, with comparable output."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from tests.support.peer import LOGBACK, classpath
from tests.support.quick_java import COMPILER, OPTIONS

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import TracebackType

SOURCES = Path(__file__).resolve().parent.parent / "interop" / "mqadmin"
COMPILE_SECONDS = 120
COMMAND_SECONDS = 120.0
HEAP = "256m"


class Outcome(NamedTuple):
    """A command's output, and whether it was still running at its time limit."""

    text: str
    is_running: bool


def compile_programs(version: str, directory: Path) -> str:
    """Compile our programs against rocketmq-tools; return the class path to run them with."""
    jars = classpath(version, ("rocketmq-tools",))
    classes = directory / "classes"
    sources = sorted(str(path) for path in SOURCES.glob("*.java"))
    subprocess.run(
        [*COMPILER, "-d", str(classes), "-cp", jars, *sources],
        timeout=COMPILE_SECONDS,
        check=True,
    )
    return f"{classes}:{jars}"


class LiveClients:
    """A producer and a consumer that stay connected. A context manager.

    `ids` maps each key to the unique ID and the offset message ID of its message.
    """

    def __init__(
        self, jars: str, directory: Path, namesrv: str, topic: str, broker_name: str, count: int
    ) -> None:
        self.ids: dict[str, tuple[str, str]] = {}
        self._command = [
            *("java", f"-Xmx{HEAP}", *OPTIONS),
            f"-Duser.home={directory}",
            *("-cp", jars, "LiveClients", namesrv, topic, broker_name, str(count)),
        ]
        self._errors = directory / "live.err"
        self._process: subprocess.Popen[str] | None = None

    def __enter__(self) -> LiveClients:
        with self._errors.open("wb") as errors:
            self._process = subprocess.Popen(
                self._command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )
        assert self._process.stdout is not None
        for line in self._process.stdout:
            word, *rest = line.split()
            if word == "ready":
                return self
            if word == "sent":
                self.ids[rest[0]] = (rest[1], rest[2])
        self._process.wait()
        raise AssertionError(self._errors.read_text(errors="replace")[-4_000:])

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        _end(self._process)


def _end(process: subprocess.Popen[str] | None) -> None:
    """Close a program's input and wait for it to end."""
    assert process is not None
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.close()
    try:
        process.wait(30)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    process.stdout.close()


class MqAdmin:
    """One JVM. A context manager."""

    def __init__(self, jars: str, directory: Path, namesrv: str) -> None:
        self._jars = jars
        self._directory = directory
        self._namesrv = namesrv
        self._process: subprocess.Popen[str] | None = None

    def __enter__(self) -> MqAdmin:
        conf = self._directory / "conf"
        conf.mkdir(exist_ok=True)
        log = self._directory / "tools.log"
        (conf / "logback_tools.xml").write_text(LOGBACK.format(file=log))
        with (self._directory / "mqadmin.err").open("wb") as errors:
            self._process = subprocess.Popen(
                [
                    *("java", f"-Xmx{HEAP}", *OPTIONS),
                    f"-Duser.home={self._directory}",
                    f"-Drocketmq.home.dir={self._directory}",
                    f"-Drocketmq.namesrv.addr={self._namesrv}",
                    *("-cp", self._jars, "MqAdmin"),
                ],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                encoding="utf-8",
                cwd=self._directory,
            )
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        _end(self._process)

    def run(self, *command: str, seconds: float = COMMAND_SECONDS) -> Outcome:
        """Run a command to its end for at most `seconds`; if negative, until its first line."""
        assert self._process is not None
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write("\t".join((str(seconds), *command)) + "\n")
        self._process.stdin.flush()
        lines: list[str] = []
        for line in self._process.stdout:
            if line == "BEGIN\n":
                lines.clear()
            elif line.startswith("END "):
                return Outcome("".join(lines).strip(), line == "END RUNNING\n")
            else:
                lines.append(line)
        raise AssertionError(f"mqadmin ended in the middle of {command}")


def normalised(text: str, names: Mapping[str, str]) -> str:
    """Return a command's output with every value that differs between runs replaced by its kind.

    `names` maps texts of the deployment, such as an address, to their replacements.
    """
    for found, kind in sorted(names.items(), key=lambda pair: -len(pair[0])):
        text = text.replace(found, kind)
    for pattern, kind in _PATTERNS:
        text = pattern.sub(kind, text)
    lines = [line.rstrip() for line in text.splitlines()]
    return "\n".join(line for line in lines if line)


def shaped(text: str, shape: str) -> str:
    """Return the part of a normalised text that is compared, by its `Shape`."""
    lines = text.splitlines()
    match shape:
        case "lines":
            return "\n".join(sorted(_squeezed(line) for line in lines))
        case "names":
            return "\n".join(sorted({_NUMBER.sub("N", _squeezed(line)) for line in lines}))
        case "keys":
            bare = [line.removeprefix("BROKER ").strip() for line in lines]
            keys = {_KEY.split(line, maxsplit=1)[0] for line in bare}
            return "\n".join(sorted(keys))
        case "first":
            return lines[0] if lines else ""
        case _:
            return "\n".join(_squeezed(line) for line in lines)


def _squeezed(line: str) -> str:
    return _BLANKS.sub(" ", line)


_BLANKS = re.compile(r"[ \t]+")
_NUMBER = re.compile(r"\b\d+\b|(?<=rt=)\d+|\d+(?=ms\b)")
_KEY = re.compile(r"\s*[:=]\s|\s{2,}|[:=]$")
_PATTERNS = tuple(
    (re.compile(pattern), kind)
    for pattern, kind in (
        (r"RocketMQLog:WARN .*\n?", ""),
        (r"SLF4J: .*\n?", ""),
        (r"\n\s+at [\w.$/<>]+\(.*\)", ""),
        (r"\n\s*\.\.\. \d+ more", ""),
        (r"(?<=commitLogDiskRatio_)\S+", "PATH"),
        (r"(?<=timeout, )\d+(?=\(ms\))", "N"),
        (r"(?<=spentTimeMills=)\d+", "N"),
        (r"\d{4}-\d\d-\d\d[ #T]\d\d:\d\d:\d\d([:,.]\d{3})?", "TIME"),
        (r"\b1[6-9]\d{11}\b", "MS"),
        (r"\b[0-9A-F]{32}(?:[0-9A-F]{24})?\b", "ID"),
        (r"\d+\.\d+\.\d+\.\d+@\S+", "CLIENT"),
        (r"127\.0\.0\.1:\d+", "ADDRESS"),
        (r"\b\d+\.\d+ ?ms\b", "N ms"),
        (r"\d+\.\d+(E-?\d+)?", "N"),
    )
)
