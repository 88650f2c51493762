"""An archive of Spark's classes that Java maps; loading the classes is half of a cold start.

TREBUCHET_SPARK_CLASSES names its directory. If this Java and Spark have no archive yet, Java writes
one when the session ends normally, which takes most of a minute of idle processor time. Later
sessions load the archive; Java checks that it matches. The archive is code, so no other user may
have write access to the directory.

Source: JEP 350, dynamic archives of application classes. Java accepts an archive only if the class
path is the same as when it was written and has no directory with files, so the directory `conf`
stays empty.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import importlib.util
import logging
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

logger = logging.getLogger(__name__)

VARIABLE = "TREBUCHET_SPARK_CLASSES"
# Java writes 170 MB on a processor that it may have to share.
WRITING_SECONDS_MAX = 600
# Java logs thousands of lines about archives, which only its developers need.
_QUIET = "-Xlog:disable -Xlog:all=error:stderr"
_GROUP_AND_OTHERS = 0o077


@dataclass(frozen=True, slots=True)
class ClassArchive:
    """The archive for one Java and the installed Spark; it may not exist yet."""

    directory: Path
    file: Path

    @classmethod
    def of(cls, java: Path, environment: Mapping[str, str] = os.environ) -> ClassArchive | None:
        """Return the archive, or None if its directory isn't set or isn't usable."""
        given = environment.get(VARIABLE, "").strip()
        if not given:
            return None
        directory = Path(given).absolute()
        try:
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            (directory / "conf").mkdir(mode=0o700, exist_ok=True)
            found = directory.stat()
        except OSError as error:
            logger.warning(
                "class archive not used, directory not created directory=%s error=%s",
                directory,
                error.strerror,
            )
            return None
        if found.st_uid != os.geteuid() or found.st_mode & _GROUP_AND_OTHERS:
            logger.warning("class archive not used, wrong owner or mode directory=%s", directory)
            return None
        return cls(directory, directory / f"spark-{_mark(java)}.jsa")

    @property
    def conf(self) -> Path:
        """The directory on Java's class path, which stays empty."""
        return self.directory / "conf"

    @property
    def options(self) -> str:
        """The Java options that load the archive, or write it when Java ends."""
        if self.file.exists():
            return f'"-XX:SharedArchiveFile={self.file}" {_QUIET}'
        return f'"-XX:ArchiveClassesAtExit={self._draft}" {_QUIET}'

    def keep(self) -> None:
        """Keep the archive that Java has just written, and delete older ones."""
        if not self._draft.exists():
            return
        for old in (*self.directory.glob("*.jsa"), *self.directory.glob("*.part")):
            if old != self._draft:
                old.unlink(missing_ok=True)
        self._draft.rename(self.file)
        logger.info("class archive written file=%s", self.file)

    @property
    def _draft(self) -> Path:
        return self.file.with_suffix(f".{os.getpid()}.part")


def _mark(java: Path) -> str:
    # Importing PySpark takes a third of a second.
    spec = importlib.util.find_spec("pyspark")
    assert spec is not None
    assert spec.origin is not None
    sources = (java.resolve(), Path(spec.origin).parent / "jars")
    marks = [(str(each), each.stat().st_size, each.stat().st_mtime_ns) for each in sources]
    versions = repr((importlib.metadata.version("pyspark"), marks)).encode()
    return hashlib.sha256(versions).hexdigest()[:16]
