"""The sources as a separate package, with only its dependencies."""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

from analytics.packaging.build_hook import renamed_modules
from tests.analytics.run_report import ROOT
from tests.analytics.store_builder import StoreBuilder

RUN_SECONDS_MAX = 900
NEEDED = ("pyspark", "py4j", "pyarrow", "numpy", "msgspec")
# Unrelated packages of these names may be installed.
STRANGERS = ("analytics", "broker_core")
LOADED = """
import importlib, importlib.util, sys
import trebuchet_spark.sources.commitlog, trebuchet_spark.sources.rocketmq
import pyspark_commitlog, pyspark_rocketmq
assert importlib.util.find_spec("django") is None
assert not {"analytics", "broker_core"} & {*sys.modules}
from trebuchet_spark.store.bulk import NumpyBulk, chosen
assert isinstance(chosen(), NumpyBulk)
for name in sorted(sys.modules):
    if name.startswith(("trebuchet_spark", "pyspark_")):
        print(name)
"""
# Nothing is registered: Spark finds the source in the installed package.
READ = """
from pyspark.sql import SparkSession
settings = {"spark.ui.enabled": "false", "spark.sql.shuffle.partitions": "1"}
spark = SparkSession.builder.master("local[1]").config(map=settings).getOrCreate()
EXAMPLE
spark.stop()
"""
README = (ROOT / "analytics" / "packaging" / "README.md").read_text()


@pytest.fixture(scope="module")
def site(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory for PYTHONPATH: the wheel, links to its dependencies, and unrelated packages."""
    directory = tmp_path_factory.mktemp("site")
    install = ("install", "--no-index", "--no-deps", "--target", directory, wheel)
    _run("-m", "pip", "--disable-pip-version-check", *install, environment=dict(os.environ))
    for packages in {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}:
        for name in NEEDED:
            for found in Path(packages).glob(f"{name}*"):
                link = directory / found.name
                if not link.exists():
                    link.symlink_to(found)
    for name in STRANGERS:
        (directory / f"{name}.py").write_text('raise RuntimeError("a stranger was imported")\n')
    return directory


def test_the_wheel_has_one_package_and_what_spark_needs_to_find_it(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as opened:
        names = opened.namelist()

    assert {name.partition("/")[0] for name in names} == {
        "pyspark_commitlog.py",
        "pyspark_rocketmq.py",
        "trebuchet_spark",
        "trebuchet_spark-0.1.dev0.dist-info",
    }


def test_the_wheel_has_exactly_the_modules_the_sources_import(
    wheel: Path, site: Path, tmp_path: Path
) -> None:
    with zipfile.ZipFile(wheel) as opened:
        files = [name for name in opened.namelist() if name.endswith(".py")]

    loaded = _python(site, tmp_path, "-S", "-c", LOADED).split()

    modules = {
        name.removesuffix(".py").removesuffix("/__init__").replace("/", ".") for name in files
    }
    assert modules == set(loaded)


def test_its_metadata_describes_it(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as opened:
        names = opened.namelist()
        (place,) = [name for name in names if name.endswith("/METADATA")]
        head, _, description = opened.read(place).decode().partition("\n\n")

    fields = head.splitlines()
    assert (
        "Summary: Spark data sources for Apache RocketMQ: store directories and running clu" in head
    )
    assert "License-Expression: Apache-2.0" in fields
    assert "Requires-Python: >=3.11" in fields
    assert {line for line in fields if line.startswith("Requires-Dist")} == {
        f"Requires-Dist: {one}"
        for one in ("pyspark>=4.2", "pyarrow>=18", "numpy>=2", "msgspec>=0.19")
    }
    assert [line for line in fields if line.startswith("Project-URL: ")]
    assert len([line for line in fields if line.startswith("Classifier: ")]) > 3
    assert description == README
    assert {name.rpartition("/")[2] for name in names} >= {"LICENSE", "NOTICE"}


def test_rebuilding_gives_the_same_bytes(wheel: Path, tmp_path: Path) -> None:
    # Built by another user, at another time, from a source distribution.
    before = os.umask(0o077)
    try:
        for what, where in (("sdist", ROOT), ("wheel", None)):
            if where is None:
                (packed,) = tmp_path.glob("*.tar.gz")
                subprocess.run(["tar", "-xzf", packed], cwd=tmp_path, check=True)
                where = packed.with_name(packed.name.removesuffix(".tar.gz"))
            _run(
                *("-m", "hatchling", "build", "--target", what, "--directory", tmp_path),
                environment={**os.environ, "TZ": "Asia/Shanghai"},
                directory=where,
            )
    finally:
        os.umask(before)

    (again,) = tmp_path.glob("*.whl")
    digests = {hashlib.sha256(path.read_bytes()).hexdigest() for path in (wheel, again)}
    assert again.name == wheel.name
    assert len(digests) == 1


@pytest.mark.parametrize(
    "line",
    [
        "import broker_core",
        'NAME = "broker_core.message"',
        "from . import other",
        "from broker_core\\\n    import message",
    ],
)
def test_a_module_that_cannot_be_renamed_stops_the_build(tmp_path: Path, line: str) -> None:
    packaging = tmp_path / "analytics" / "packaging"
    packaging.mkdir(parents=True)
    for name in ("trebuchet_spark", "pyspark_commitlog", "pyspark_rocketmq"):
        (packaging / f"{name}.py").write_text("from analytics import made\n")
    made = tmp_path / "analytics" / "made.py"
    made.write_text("from broker_core import gone\n")
    (tmp_path / "broker_core").mkdir()
    (tmp_path / "broker_core" / "gone.py").write_text('"""See broker_core.gone for more."""\n')

    found = renamed_modules(tmp_path)
    assert found["trebuchet_spark/__init__.py"] == "from trebuchet_spark import made\n"
    assert found["trebuchet_spark/made.py"] == "from trebuchet_spark.broker_core import gone\n"

    made.write_text(line + "\n")
    with pytest.raises(ValueError, match=r"made\.py:1: "):
        renamed_modules(tmp_path)


@pytest.mark.spark
@pytest.mark.usefixtures("java_17")
def test_spark_finds_the_source_by_itself(site: Path, tmp_path: Path) -> None:
    store = StoreBuilder(tmp_path / "store").put_many(30).write()
    (example,) = re.findall(r"^```python\n(.*?)^```", README, re.DOTALL | re.MULTILINE)
    program = READ.replace("EXAMPLE", example.replace("/data/rocketmq/store", str(store)))

    text = _python(site, tmp_path, "-c", program)

    assert "|orders|   15|" in text
    assert "| bills|   15|" in text


def _python(site: Path, directory: Path, *arguments: object) -> str:
    environment = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("PYTHON", "SPARK", "PYSPARK"))
    }
    environment |= {
        "PYTHONPATH": str(site),
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    return _run(*arguments, environment=environment, directory=directory)


def _run(*arguments: object, environment: dict[str, str], directory: Path | None = None) -> str:
    ran = subprocess.run(
        [sys.executable, *map(str, arguments)],
        cwd=directory,
        env=environment,
        capture_output=True,
        text=True,
        timeout=RUN_SECONDS_MAX,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    return ran.stdout
