"""Compiles the turn, the reading of records and gRPC: `python -m broker_core.native.build`.

Run by deploy/up and deploy/test. What was compiled before is found again; without a compiler, or
without Python's headers, nothing is built and everything runs as Python alone. Standard library
only.

Exit codes: 0 it is there, 1 it could not be built; one sentence says why.
"""

from __future__ import annotations

import importlib.metadata
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from broker_core.native.place import CYTHON, MODULES, SOURCES, flags, place

ROOT = SOURCES.parent.parent
SECONDS_MAX = 300
WORDS_MAX = 2000


class BuildError(Exception):
    """It cannot be built; the text is one sentence without its end."""


def build() -> tuple[Path, bool]:
    """Compile unless that was done; return where the turn is, and whether it was compiled now.

    Raises:
        BuildError: it cannot be built here.
    """
    target = place()
    targets = [place(module) for module in MODULES]
    if all(each.is_file() for each in targets):
        return target, False
    compiler = _compiler()
    include = Path(sysconfig.get_path("include"))
    if not (include / "Python.h").is_file():
        raise BuildError(f"{include}/Python.h is missing (Debian: apt install python3-dev)")
    try:
        installed = importlib.metadata.version("cython")
    except importlib.metadata.PackageNotFoundError:
        installed = "none"
    if installed != CYTHON:
        raise BuildError(f"Cython {CYTHON} is needed, installed is {installed}")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=target.parent) as directory:
            # Side by side: the second is done long before the first.
            with ThreadPoolExecutor(len(targets)) as threads:
                compiled = [
                    threads.submit(_compile, Path(directory), compiler, include, each)
                    for each in targets
                ]
                for each in compiled:
                    each.result()
    except OSError as error:
        raise BuildError(f"{target.parent} cannot be written: {error.strerror}") from error
    _forget_others(target)
    return target, True


def _compiler() -> str:
    for name in ("gcc", "cc", "clang"):
        found = shutil.which(name)
        if found is not None:
            return found
    raise BuildError("there is no C compiler (Debian: apt install gcc python3-dev)")


def _compile(directory: Path, compiler: str, include: Path, target: Path) -> None:
    name = target.name.partition(".")[0]
    source, built = directory / f"{name}.c", directory / target.name
    pyx = (SOURCES / f"{name}.pyx").relative_to(ROOT)
    _run([sys.executable, "-m", "cython", "-3", str(pyx), "-o", str(source)])
    headers = [f"-I{include}", f"-I{SOURCES}"]
    _run([compiler, *flags(), *headers, str(source), "-o", str(built)])
    built.chmod(0o755)
    # In one step, so that nobody loads half of it.
    built.replace(target)


def _run(command: list[str]) -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    try:
        done = subprocess.run(
            command,
            cwd=ROOT,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=SECONDS_MAX,
        )
    except subprocess.TimeoutExpired:
        raise BuildError(f"{command[0]} did not end within {SECONDS_MAX} s") from None
    if done.returncode != 0:
        words = done.stdout.decode(errors="replace")[-WORDS_MAX:].strip()
        raise BuildError(f"{command[0]} failed with exit code {done.returncode}:\n{words}")


def _forget_others(target: Path) -> None:
    """Delete what was compiled from earlier sources; a process that has it loaded keeps it."""
    for other in target.parent.parent.iterdir():
        if other != target.parent and (other / target.name).is_file():
            shutil.rmtree(other, ignore_errors=True)


def main() -> int:
    try:
        target, is_new = build()
    except BuildError as error:
        sys.stdout.write(f"The appliance runs without its compiled part: {error}.\n")
        return 1
    if is_new:
        sys.stdout.write(f"Compiled {target.relative_to(ROOT)}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
