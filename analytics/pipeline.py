"""The Spark session that all jobs share; the first job that needs it starts it.

TREBUCHET_PIPELINE_ENGINE selects the engine for the lake: `spark` (the default), or `arrow`, which
works in this process and needs no Java. Reports always need Spark.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import threading
from pathlib import Path
from typing import TYPE_CHECKING

from analytics.engine import start_engine
from analytics.errors import ReportError
from analytics.java import require_java
from analytics.lake.writer import ARROW, SPARK, ArrowWriter
from analytics.request import LOOPBACK, MASTER_DEFAULT
from analytics.session import Spark, is_connect, require_executor
from analytics.spark_writer import SparkWriter

if TYPE_CHECKING:
    from collections.abc import Mapping

    from analytics.engine import Engine
    from analytics.lake.writer import Writer

ENGINE_VARIABLE = "TREBUCHET_PIPELINE_ENGINE"
MASTER_VARIABLE = "TREBUCHET_SPARK_MASTER"
DRIVER_HOST_VARIABLE = "TREBUCHET_SPARK_DRIVER_HOST"
# The folder in TREBUCHET_DATA that Spark spills to.
SCRATCH_FOLDER, SCRATCH = "pipeline", "spark"


def engine_name(environment: Mapping[str, str] = os.environ) -> str:
    """Return the name of the lake's engine.

    Raises:
        ReportError: the environment names an unknown engine.
    """
    name = environment.get(ENGINE_VARIABLE, "").strip().lower() or SPARK
    if name not in (SPARK, ARROW):
        raise ReportError(f"{ENGINE_VARIABLE} is {name!r}; it must be {SPARK} or {ARROW}.")
    return name


class WarmSpark:
    """A Spark session that starts when first needed and runs until closed. Thread-safe start."""

    def __init__(
        self, environment: Mapping[str, str], master: str = "", driver_host: str = ""
    ) -> None:
        """`master` defaults to the environment's."""
        self.master = master or environment.get(MASTER_VARIABLE, "").strip() or MASTER_DEFAULT
        self._driver_host = (
            driver_host or environment.get(DRIVER_HOST_VARIABLE, "").strip() or LOOPBACK
        )
        self._engine_name = engine_name(environment)
        data = environment.get("TREBUCHET_DATA", "").strip()
        self._scratches = Path(data) / SCRATCH_FOLDER if data else Path(tempfile.gettempdir())
        self._lock = threading.Lock()
        self._scratch: Path | None = None
        self._engine: Engine | None = None

    def engine(self) -> Engine:
        """Return the running Spark.

        Raises:
            ReportError: Spark doesn't start.
        """
        with self._lock:
            if self._engine is None:
                if not is_connect(self.master):
                    require_java()
                self._scratch = _new_scratch(self._scratches)
                self._engine = start_engine(
                    self._scratch, master=self.master, driver_host=self._driver_host
                )
        if isinstance(self._engine, Spark):
            require_executor(self._engine, self.master)
        return self._engine

    def writer(self) -> Writer:
        """Return the writer of the selected engine.

        Raises:
            ReportError: Spark doesn't start.
        """
        if self._engine_name == ARROW:
            return ArrowWriter()
        return SparkWriter(self.engine(), self.master)

    @property
    def running(self) -> Engine | None:
        """The running Spark, None before it is started."""
        return self._engine

    def close(self, *, in_order: bool = False) -> None:
        """Stop Spark and remove its files; `in_order` takes longer and saves its class archive."""
        engine, self._engine = self._engine, None
        try:
            if engine is not None and in_order:
                engine.close_in_order()
            elif engine is not None:
                engine.close()
        finally:
            if self._scratch is not None:
                shutil.rmtree(self._scratch, ignore_errors=True)


def _new_scratch(folder: Path) -> Path:
    """Create a directory for Spark's files, and remove directories of killed processes."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    for left in folder.glob(f"{SCRATCH}-*-*"):
        pid = left.name.split("-")[1]
        if pid.isdigit() and not Path(f"/proc/{pid}").exists():
            shutil.rmtree(left, ignore_errors=True)
    # Mode 0700: Spark's spill files contain message data.
    return Path(tempfile.mkdtemp(prefix=f"{SCRATCH}-{os.getpid()}-", dir=folder))
