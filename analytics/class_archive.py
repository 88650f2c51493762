"""The classes of Spark in one file that Java maps: loading them is half of a cold start.

    python -m analytics.class_archive

makes it in the directory that TREBUCHET_SPARK_CLASSES names: it has Spark make a report of a small
log, and Java write down, at its end, what it loaded for that. Runs take the file from then on, and
do without where there is none. A file is for one Java and one Spark; Java itself looks, too,
whether it fits, and leaves alone what does not. It is code, so that nobody else may write there.

Source: JEP 350, dynamic archives of application classes. Java takes one only while its class path
is that of the making and holds no directory with files, hence the directory `conf` here.
"""

from __future__ import annotations

import fcntl
import hashlib
import importlib.metadata
import importlib.util
import logging
import os
import shutil
import sys
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from analytics.errors import ReportError
from analytics.guest import is_guest, step_back
from analytics.java import JavaMissingError, require_java
from broker_core.log_lines import log_to_stderr

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

logger = logging.getLogger("analytics")

VARIABLE = "TREBUCHET_SPARK_CLASSES"
# Java writes 170 MB of them on a processor that others want, too.
WRITING_SECONDS_MAX = 600
MESSAGES = 1000
REPORTS = ("traffic", "latency")
# What Java says about archives is for its own developers: thousands of lines.
_QUIET = "-Xlog:disable -Xlog:all=error:stderr"
_WORK = ".making-"
_OTHERS_MAY = 0o077


def directory(environment: Mapping[str, str] | None = None) -> Path | None:
    """Return where the file is to be, None where none is wanted."""
    given = (os.environ if environment is None else environment).get(VARIABLE, "").strip()
    return Path(given).absolute() if given else None


def archive_in(place: Path, java: Path) -> Path:
    """Return the file for a Java and the Spark that is installed, there or not."""
    # To import it takes a third of a second.
    spec = importlib.util.find_spec("pyspark")
    assert spec is not None
    assert spec.origin is not None
    sources = (java.resolve(), Path(spec.origin).parent / "jars")
    marks = [(str(each), each.stat().st_size, each.stat().st_mtime_ns) for each in sources]
    said = repr((importlib.metadata.version("pyspark"), marks)).encode()
    return place / f"spark-{hashlib.sha256(said).hexdigest()[:16]}.jsa"


def conf_in(place: Path) -> Path:
    """Return the directory on Java's class path, which stays empty."""
    return place / "conf"


def options_for(place: Path | None, java: Path) -> str:
    """Return the options by which Java takes the file, "" where there is none to take."""
    if place is None or not is_ours_alone(place):
        return ""
    archive = archive_in(place, java)
    return f'"-XX:SharedArchiveFile={archive}" {_QUIET}' if archive.exists() else ""


def is_ours_alone(place: Path) -> bool:
    """Return whether nobody else can write to a directory."""
    try:
        found = place.stat()
    except OSError:
        return False
    return found.st_uid == os.geteuid() and not found.st_mode & _OTHERS_MAY


def make(place: Path) -> bool:
    """Make the file, unless it is there or somebody else is at it; tell whether it was made.

    Raises:
        JavaMissingError: there is no usable Java.
        ReportError: the directory is not ours, or Spark failed.
    """
    java = require_java()
    try:
        place.mkdir(mode=0o700, parents=True, exist_ok=True)
        conf_in(place).mkdir(mode=0o700, exist_ok=True)
    except OSError as error:
        raise ReportError(f"{place} cannot be made: {error.strerror}.") from error
    if not is_ours_alone(place):
        raise ReportError(f"{place}, which {VARIABLE} names, must be this user's with mode 0700.")
    archive = archive_in(place, java)
    with _alone(place) as is_alone:
        if not is_alone or archive.exists():
            return False
        for old in (*place.glob("*.jsa"), *place.glob("*.part")):
            old.unlink()
        # A making that was killed left its own.
        for left in place.glob(f"{_WORK}*"):
            shutil.rmtree(left)
        part = archive.with_suffix(".part")
        with tempfile.TemporaryDirectory(prefix=_WORK, dir=place) as work:
            _use(Path(work), f'"-XX:ArchiveClassesAtExit={part}" {_QUIET}')
        if not part.exists():
            raise ReportError("Java wrote no archive of Spark's classes; the log says why.")
        part.rename(archive)
    return True


def _use(work: Path, java_options: str) -> None:
    """Have a new Java do once what a run does."""
    # What makes a log, and Spark, take their time to import: whoever only takes the file waits.
    from analytics.arguments import parse_arguments
    from analytics.collect import collect
    from analytics.progress import ProgressLines
    from analytics.sample_log import write_log
    from analytics.session import start_spark
    from analytics.store.reader import StoreReader

    store, scratch = work / "store", work / "spark"
    scratch.mkdir(mode=0o700)
    write_log(store, MESSAGES, time.time_ns() // 1_000_000)
    spark = start_spark(scratch, java_options=java_options)
    try:
        with Path(os.devnull).open("w") as nowhere:
            lines = ProgressLines(nowhere)
            for name in REPORTS:
                words = [name, "--store", str(store), "--out", str(work)]
                request = parse_arguments(words)
                assert request is not None
                collect(spark, request, StoreReader(store).plan(), lines)
    finally:
        spark.stop(WRITING_SECONDS_MAX)


@contextmanager
def _alone(place: Path) -> Iterator[bool]:
    with (place / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
        else:
            yield True


def main() -> int:
    log_to_stderr("%(levelname)s %(name)s: %(message)s")
    logging.getLogger("py4j").setLevel(logging.WARNING)
    place = directory()
    try:
        if place is None:
            raise ReportError(f"{VARIABLE} must name the directory for the archive.")
        if is_guest():
            step_back()
        begun = time.monotonic()
        if make(place):
            took = time.monotonic() - begun
            logger.info("archive of Spark's classes made: directory=%s seconds=%.0f", place, took)
    except JavaMissingError:
        # Whoever asks for a report is told.
        return 0
    except ReportError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
