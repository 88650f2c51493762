"""The sources as a package of their own, beside nothing but what it depends on."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

from tests.analytics.run_report import ROOT
from tests.analytics.store_builder import StoreBuilder

RUN_SECONDS_MAX = 900
NEEDED = ("pyspark", "py4j", "pyarrow", "numpy", "msgspec")
IMPORT_ALL = """
import importlib, importlib.util, pkgutil
import analytics
for found in pkgutil.walk_packages(analytics.__path__, "analytics."):
    importlib.import_module(found.name)
assert importlib.util.find_spec("django") is None
from analytics.store.bulk import NumpyBulk, chosen
assert isinstance(chosen(), NumpyBulk)
print(analytics.__file__)
"""
# Nothing is registered: Spark finds the source in the installed package.
READ = """
import sys
from pyspark.sql import SparkSession
spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
frame = spark.read.format("commitlog").load(sys.argv[1])
topics = sorted({row.topic for row in frame.select("topic").collect()})
print("topics:", topics)
spark.stop()
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("wheel")
    _pip("wheel", "--no-index", "--no-deps", "--wheel-dir", directory, ROOT)
    (built,) = directory.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def site(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory for PYTHONPATH: the wheel, and links to its dependencies alone."""
    directory = tmp_path_factory.mktemp("site")
    _pip("install", "--no-index", "--no-deps", "--target", directory, wheel)
    for packages in {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}:
        for name in NEEDED:
            for found in Path(packages).glob(f"{name}*"):
                link = directory / found.name
                if not link.exists():
                    link.symlink_to(found)
    return directory


def test_the_wheel_has_the_sources_and_nothing_of_the_console(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as opened:
        names = opened.namelist()

    tops = {name.partition("/")[0] for name in names}
    assert tops == {
        "pyspark_commitlog.py",
        "pyspark_rocketmq.py",
        "analytics",
        "broker_core",
        "trebuchet_spark-0.1.dev0.dist-info",
    }
    assert not [name for name in names if {"packaging", "lake", "query"} & {*name.split("/")}]
    assert not [name for name in names if "lake" in name]
    assert all(name.isascii() for name in names)


def test_building_it_again_gives_the_same_bytes(wheel: Path, tmp_path: Path) -> None:
    _pip("wheel", "--no-index", "--no-deps", "--wheel-dir", tmp_path, ROOT)

    digests = {
        hashlib.sha256(path.read_bytes()).hexdigest() for path in (wheel, tmp_path / wheel.name)
    }
    assert len(digests) == 1


def test_every_module_is_importable_without_django_or_the_checkout(
    site: Path, tmp_path: Path
) -> None:
    said = _python(site, tmp_path, "-S", "-c", IMPORT_ALL)

    assert said.strip() == str(site / "analytics" / "__init__.py")


@pytest.mark.spark
@pytest.mark.usefixtures("java_17")
def test_spark_finds_the_source_by_itself(site: Path, tmp_path: Path) -> None:
    store = StoreBuilder(tmp_path / "store").put_many(30).write()

    said = _python(site, tmp_path, "-c", READ, store)

    assert "topics: ['bills', 'orders']" in said


def _pip(*arguments: object) -> None:
    _run("-m", "pip", "--disable-pip-version-check", *arguments, environment=dict(os.environ))


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
