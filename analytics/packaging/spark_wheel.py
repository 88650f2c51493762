"""Build backend: the sources for Spark as a wheel, `trebuchet-spark`.

    pip wheel --no-deps --wheel-dir DIR CHECKOUT

The wheel holds analytics without the lake, which is the appliance's; the parts of broker_core that
it imports; and the modules by which Spark finds the sources. Neither Django nor anything else of
the console is in it or needed by it. It is the same, byte for byte, whenever it is built from the
same files. Standard library only: nothing is downloaded to build it.

Source: PEP 517 (backend hooks), PEP 427 (wheel), core metadata 2.1.
"""

from __future__ import annotations

import base64
import hashlib
import tomllib
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

ROOT = Path(__file__).resolve().parent.parent.parent
BROKER_CORE = ("config", "formats", "listening", "message", "protocol", "remoting")
# What needs the other packages.
LEFT_OUT = ("__main__.py", "broker.py")
LAKE = (
    ROOT / "analytics" / "lake",
    ROOT / "analytics" / "lake_on_spark.py",
    ROOT / "analytics" / "__main__.py",
    ROOT / "analytics" / "report_from_lake.py",
    ROOT / "analytics" / "report_from_samples.py",
    ROOT / "analytics" / "bench.py",
    ROOT / "analytics" / "bench_bronze.py",
    ROOT / "analytics" / "bench_sends.py",
    ROOT / "analytics" / "query",
)
"""The lake, queries over it, what measures them, and the command that asks the lake first."""
TOP_LEVEL = "pyspark_*.py"
TAG = "py3-none-any"
EARLIEST = (1980, 1, 1, 0, 0, 0)


def build_wheel(
    wheel_directory: str,
    config_settings: Mapping[str, Any] | None = None,
    metadata_directory: str | None = None,
) -> str:
    """Write the wheel into a directory; return its name."""
    project = _project()
    name = f"{project['name'].replace('-', '_')}-{project['version']}"
    record: list[str] = []
    with zipfile.ZipFile(
        Path(wheel_directory) / f"{name}-{TAG}.whl", "w", zipfile.ZIP_DEFLATED
    ) as wheel:
        for place, content in [*_modules(), *_metadata(project, f"{name}.dist-info")]:
            wheel.writestr(_entry(place), content)
            digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=")
            record.append(f"{place},sha256={digest.decode()},{len(content)}\n")
        place = f"{name}.dist-info/RECORD"
        wheel.writestr(_entry(place), "".join(record) + f"{place},,\n")
    return f"{name}-{TAG}.whl"


def build_sdist(
    sdist_directory: str, config_settings: Mapping[str, Any] | None = None
) -> str:  # pragma: no cover - the hook must exist
    """Refuse: the source is the checkout."""
    raise NotImplementedError("trebuchet-spark is built from a checkout, as a wheel only")


def _project() -> dict[str, Any]:
    with (ROOT / "pyproject.toml").open("rb") as file:
        project: dict[str, Any] = tomllib.load(file)["project"]
    return project


def _modules() -> Iterator[tuple[str, bytes]]:
    here = Path(__file__).parent
    core = ROOT / "broker_core"
    files = [path for path in sorted(core.glob("*.py")) if path.name not in LEFT_OUT]
    for package in [*(core / name for name in BROKER_CORE), ROOT / "analytics"]:
        files += [
            path
            for path in sorted(package.rglob("*.py"))
            if path.parent != here and not {path, path.parent} & {*LAKE}
        ]
    for file in files:
        yield file.relative_to(ROOT).as_posix(), file.read_bytes()
    for file in sorted(here.glob(TOP_LEVEL)):
        yield file.name, file.read_bytes()


def _metadata(project: Mapping[str, Any], directory: str) -> Iterator[tuple[str, bytes]]:
    lines = [
        "Metadata-Version: 2.1",
        f"Name: {project['name']}",
        f"Version: {project['version']}",
        f"Summary: {project['description']}",
        "License: Apache-2.0",
        f"Requires-Python: {project['requires-python']}",
        *(f"Requires-Dist: {each}" for each in project["dependencies"]),
    ]
    for extra, needed in project.get("optional-dependencies", {}).items():
        lines.append(f"Provides-Extra: {extra}")
        lines += [f'Requires-Dist: {each}; extra == "{extra}"' for each in needed]
    yield f"{directory}/METADATA", ("\n".join(lines) + "\n").encode()
    about = f"Wheel-Version: 1.0\nGenerator: spark_wheel\nRoot-Is-Purelib: true\nTag: {TAG}\n"
    yield f"{directory}/WHEEL", about.encode()
    for name in ("LICENSE", "NOTICE"):
        yield f"{directory}/{name}", (ROOT / name).read_bytes()


def _entry(place: str) -> zipfile.ZipInfo:
    entry = zipfile.ZipInfo(place, EARLIEST)
    entry.external_attr = 0o644 << 16
    entry.compress_type = zipfile.ZIP_DEFLATED
    return entry
