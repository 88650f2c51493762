"""uv, which installs the locked packages: in a third of pip's processor time, on all cores.

Standard library only. uv is installed, by version and hash, with the pip that Python bundles for
new environments. uv uses the package sources that pip is configured for.
"""

from __future__ import annotations

import ast
import ensurepip
import functools
import os
import shutil
import subprocess
import sysconfig
from pathlib import Path
from typing import TYPE_CHECKING

from broker_core.environment import without_secrets
from deploy.install import requirements

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

SHARED_UMASK = 0o022
"""Every user may read the installed files, regardless of the installing user's umask."""
PIP_SECTIONS = ("global.", "install.", ":env:.")
"""Sections of pip's configuration; a later one takes precedence."""
PYSPARK_UNPACKED = "pyspark:--build-option=--compression=stored"
"""pyspark has no wheel. The wheel built from it is unpacked at once, so don't compress it."""


class Installer:
    """uv for one environment."""

    def __init__(self, environment: Path) -> None:
        self._environment = environment
        self._python = environment / "bin" / "python"
        self._uv = environment / "bin" / "uv"
        self._cache = environment / ".uv-cache"

    def install_itself(self) -> int:
        """Install uv; return pip's exit code."""
        command = [*self._pip(), "install", "--quiet", "--no-input", "--require-hashes"]
        command += ["--no-deps", "--disable-pip-version-check"]
        if os.geteuid() == 0:
            command.append("--root-user-action=ignore")
        return _run([*command, "-r", requirements.lock_of(requirements.UV)])

    def install(self, file: Path) -> int:
        """Install the lock of a requirements file; return uv's exit code.

        Downloads are deleted afterwards, unless UV_CACHE_DIR sets a cache.
        """
        environment = self.pip_environment()
        command: list[str | Path] = [self._uv, "pip", "install", "--quiet", "--no-config"]
        # The lock is complete, so install nothing else.
        command += ["--python", self._python, "--require-hashes", "--no-deps"]
        # pyspark's build requirements are installed by now, hashed like the rest.
        command += ["--no-build-isolation", "--config-settings-package", PYSPARK_UNPACKED]
        if environment.pop("no-index", ""):
            command.append("--no-index")
        if file != requirements.BUILD:
            # Compile all installed packages, because build requirements need not wait for it.
            command.append("--compile-bytecode")
        own = {"UV_CACHE_DIR": str(self._cache), "UV_PYTHON_DOWNLOADS": "never"}
        try:
            return _run([*command, "-r", requirements.lock_of(file)], {**own, **environment})
        finally:
            shutil.rmtree(self._cache, ignore_errors=True)

    def pip_environment(self) -> dict[str, str]:
        """Return uv's environment, from pip's configuration files and environment."""
        return uv_environment(_configuration(tuple(map(str, self._pip()))))

    def _pip(self) -> list[str | Path]:
        """Return pip's command, from Python's bundled wheel or an installed pip."""
        for place in (sysconfig.get_config_var("WHEEL_PKG_DIR"), bundled()):
            for wheel in sorted(Path(place).glob("pip-*.whl")) if place else ():
                return [self._python, wheel / "pip"]
        _run([self._python, "-m", "ensurepip"])
        return [self._python, "-m", "pip"]


@functools.cache
def _configuration(pip: tuple[str, ...]) -> str:
    command = [*pip, "config", "list"]
    return subprocess.run(
        command, stdout=subprocess.PIPE, text=True, cwd=requirements.ROOT, check=False
    ).stdout


def bundled() -> Path:
    """Return the directory of Python's bundled pip, which a distribution may have moved."""
    return Path(ensurepip.__file__).parent / "_bundled"


def uv_environment(configuration: str) -> dict[str, str]:
    """Convert the output of `pip config list` to uv's environment; `no-index` is an option."""
    found: dict[str, str] = {}
    for section in PIP_SECTIONS:
        for line in configuration.splitlines():
            name, _, value = line.removeprefix(section).partition("=")
            if line.startswith(section):
                found[name] = str(ast.literal_eval(value))
    environment = {"UV_SYSTEM_CERTS": "true"}
    for name, variable, separator in (
        ("index-url", "UV_DEFAULT_INDEX", " "),
        ("extra-index-url", "UV_INDEX", " "),
        ("find-links", "UV_FIND_LINKS", ","),
        ("trusted-host", "UV_INSECURE_HOST", " "),
        ("cert", "SSL_CERT_FILE", " "),
        ("client-cert", "SSL_CLIENT_CERT", " "),
        ("proxy", "ALL_PROXY", " "),
        ("default-timeout", "UV_HTTP_TIMEOUT", " "),
        ("timeout", "UV_HTTP_TIMEOUT", " "),
    ):
        if found.get(name):
            environment[variable] = separator.join(found[name].split())
    if found.get("no-index", "").lower() in ("1", "true", "yes", "on"):
        environment["no-index"] = "true"
    return environment


def _run(command: Sequence[str | Path], more: Mapping[str, str] | None = None) -> int:
    environment = {**(more or {}), **without_secrets(os.environ)}
    environment.pop("PYTHONPATH", None)
    return subprocess.run(
        command, env=environment, cwd=requirements.ROOT, umask=SHARED_UMASK, check=False
    ).returncode
