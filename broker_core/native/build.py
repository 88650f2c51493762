"""Compile the request turn, the record reader and the gRPC code: `python -m
broker_core.native.build`.

deploy/up and deploy/test run this module. Modules that are already compiled are reused. Without a
compiler or Python's headers nothing is built and the broker runs on Python alone.

Exit codes: 0 the modules are available, 1 the build failed; one sentence says why.
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

from broker_core.native.paths import CYTHON, MODULES, SOURCES, flags, module_path

ROOT = SOURCES.parent.parent
SECONDS_MAX = 300
WORDS_MAX = 2000


class BuildError(Exception):
    """The build failed; the message is one sentence without its full stop."""


def build() -> tuple[Path, bool]:
    """Compile unless already compiled; return the turn's path and whether this call compiled it.

    Raises:
        BuildError: the modules can't be built on this machine.
    """
    target = module_path()
    targets = [module_path(module) for module in MODULES]
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
        raise BuildError(f"Cython {CYTHON} is required, but {installed} is installed")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=target.parent) as directory:
            # In parallel: the modules take very different times to compile.
            with ThreadPoolExecutor(len(targets)) as threads:
                compiled = [
                    threads.submit(_compile, Path(directory), compiler, include, each)
                    for each in targets
                ]
                for each in compiled:
                    each.result()
    except OSError as error:
        raise BuildError(f"{target.parent} cannot be written: {error.strerror}") from error
    _delete_outdated(target)
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
    # Replace atomically, so that no process loads half a file.
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
        raise BuildError(f"{command[0]} did not finish within {SECONDS_MAX} s") from None
    if done.returncode != 0:
        words = done.stdout.decode(errors="replace")[-WORDS_MAX:].strip()
        raise BuildError(f"{command[0]} failed with exit code {done.returncode}:\n{words}")


def _delete_outdated(target: Path) -> None:
    """Delete modules compiled from earlier sources; a process that has loaded one keeps it."""
    for other in target.parent.parent.iterdir():
        if other != target.parent and (other / target.name).is_file():
            shutil.rmtree(other, ignore_errors=True)


def main() -> int:
    try:
        target, is_new = build()
    except BuildError as error:
        sys.stdout.write(f"The appliance runs without compiled code: {error}.\n")
        return 1
    if is_new:
        sys.stdout.write(f"Compiled {target.relative_to(ROOT)}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
