"""DuckDB's Iceberg extension, whose PyPI releases need an older DuckDB than ours.

That DuckDB is unpacked into the test cache, not installed, and runs in a separate process.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

from tests.support.broker_process import ROOT

if TYPE_CHECKING:
    from pathlib import Path

VERSION = "1.5.5"
HOME = ROOT / ".pytest_cache" / f"duckdb-iceberg-{VERSION}"
PACKAGES = ("duckdb", "duckdb-extension-avro", "duckdb-extension-iceberg")
DOWNLOAD_SECONDS = 300
QUERY_SECONDS = 120
SCRIPT = """
import json, sys
from pathlib import Path
import duckdb

with duckdb.connect(config={"threads": 1}) as connection:
    for name in ("avro", "iceberg"):
        (file,) = Path(sys.path[1]).glob(f"duckdb_extension_{name}/**/{name}.duckdb_extension")
        connection.execute(f"LOAD '{file}'")
    found = [connection.execute(sql).fetchall() for sql in sys.argv[1:]]
print(json.dumps(found))
"""


def answers(*queries: str) -> list[Any]:
    """Return the rows of each query."""
    ran = subprocess.run(
        [sys.executable, "-c", SCRIPT, *queries],
        env={**os.environ, "PYTHONPATH": str(unpacked())},
        cwd="/",
        capture_output=True,
        text=True,
        timeout=QUERY_SECONDS,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    found: list[Any] = json.loads(ran.stdout)
    return found


def unpacked() -> Path:
    """Return the directory of that DuckDB, downloading it from PyPI first if needed."""
    if not HOME.is_dir():
        unpacking = HOME.with_name(f"{HOME.name}.{os.getpid()}")
        pins = [f"{name}=={VERSION}" for name in PACKAGES]
        subprocess.run(
            [
                *(sys.executable, "-m", "pip", "install", "--quiet", "--no-deps"),
                *("--only-binary", ":all:", "--target", str(unpacking), *pins),
            ],
            timeout=DOWNLOAD_SECONDS,
            check=True,
        )
        unpacking.rename(HOME)
    return HOME
