"""An ingest that loses a process at a step.

`python -m tests.analytics.lake.killed_ingest LAKE STORE BATCH_BYTES ENGINE VICTIM STEP NTH`: the
victim (`worker`, which is the process itself, `java` or `python`, a task's process) gets SIGKILL
when the step has been done for the NTH time. The step `writing TABLE` means a half-written file of
it.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import tempfile
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from analytics.errors import ReportError
from analytics.lake.bodies import BodyRules
from analytics.lake.ingest import Source
from analytics.lake.jobs import LakeJobs
from analytics.lake.place import LakePlace
from analytics.pipeline import ENGINE_VARIABLE, WarmSpark
from analytics.session import Spark
from tests.analytics.lake.lakes import BROKER, SmallBatches

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import BinaryIO

    from analytics.lake.writer import Writer

WRITING = "writing bronze.messages"
WORKER, JAVA, PYTHON = "worker", "java", "python"
SECONDS = 600.0
FAILED = 7


@dataclass(frozen=True)
class DeadlyPlace(LakePlace):
    """A storage location where writing a file kills a process if a plan says so.

    The plan is a file next to the lake, so that Spark's tasks see it, too.
    """

    @classmethod
    def at(cls, uri: str) -> DeadlyPlace:
        place = LakePlace.of(uri, None, {})
        return cls(**{name: getattr(place, name) for name in LakePlace.__dataclass_fields__})

    @property
    def plan(self) -> Path:
        return Path(f"{self.uri}.deadly")

    def kills(self, table: str, nth: int, pid: int | None) -> None:
        """Let the NTH file of a table kill a process; None means the process that writes it."""
        self.plan.write_text(json.dumps([table, nth, pid]))

    @contextmanager
    def new_file(self, name: str, path: str) -> Iterator[BinaryIO]:
        with super().new_file(name, path) as stream:
            if self.plan.exists():
                stream.write(b"PAR1")
                stream.flush()
                self._kill_if_due(name)
                stream.seek(0)
            yield stream

    def _kill_if_due(self, written: str) -> None:
        table, nth, pid = json.loads(self.plan.read_text())
        if written != table:
            return
        if nth > 1:
            self.kills(table, nth - 1, pid)
            return
        self.plan.unlink()
        os.kill(pid or os.getpid(), signal.SIGKILL)


def main(arguments: list[str]) -> int:
    lake, store, batch_bytes, engine, victim, step, nth = arguments
    left = int(nth)
    place = DeadlyPlace.at(lake)
    data = tempfile.mkdtemp(dir=Path(lake).parent)
    spark = WarmSpark({ENGINE_VARIABLE: engine, "TREBUCHET_DATA": data})

    def pid_of_victim() -> int | None:
        if victim == JAVA:
            assert isinstance(spark.running, Spark)
            return spark.running.java_pid
        return os.getpid() if victim == WORKER else None

    def on_step(name: str) -> None:
        nonlocal left
        left -= name == step
        if name == step and not left:
            os.kill(pid_of_victim() or os.getpid(), signal.SIGKILL)

    def started() -> Writer:
        writer = SmallBatches(spark.writer(), int(batch_bytes))
        if step.startswith("writing "):
            place.kills(step.removeprefix("writing "), int(nth), pid_of_victim())
        return writer

    jobs = LakeJobs(place, started, seconds=SECONDS, observer=on_step)
    try:
        jobs.ingest(Source(BROKER, Path(store), None, BodyRules()))
    except ReportError:
        return FAILED
    finally:
        spark.close()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
