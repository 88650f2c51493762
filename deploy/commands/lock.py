"""Write the lock of each requirements file: all packages below it, with the hashes of their files.

Run `deploy/lock` after changing a requirements file. `deploy/lock --upgrade` also selects the
newest versions of packages that the files don't pin. uv resolves for every Python from the oldest
on and for every platform at once, which pip-tools doesn't support.
"""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

from deploy.install import virtualenv
from deploy.install.requirements import CONNECT, FILES, OTLP, REDIS, ROOT, RUN, TEST, lock_of
from deploy.terminal.output import complain, say

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

WITHOUT_DEPENDENCIES = frozenset({REDIS})
"""Installed without dependencies."""
OLDEST = ".".join(map(str, virtualenv.OLDEST_PYTHON))


def command(file: Path, *, upgrade: bool) -> list[str]:
    """Return uv's command for one file; locked packages keep their versions."""
    chosen = ["--upgrade"] if upgrade else []
    if file in WITHOUT_DEPENDENCIES:
        chosen.append("--no-deps")
    if file in {TEST, OTLP, CONNECT}:
        # All are installed into one environment.
        chosen += ["--constraints", str(lock_of(RUN).relative_to(ROOT))]
    return [
        *(str(virtualenv.PYTHON), "-m", "uv", "pip", "compile", "--quiet", "--no-config"),
        *("--universal", "--python-version", OLDEST, "--generate-hashes"),
        *("--custom-compile-command", "deploy/lock", *chosen),
        *("--output-file", str(lock_of(file).relative_to(ROOT))),
        str(file.relative_to(ROOT)),
    ]


def main(arguments: Sequence[str]) -> int:
    if arguments not in ([], ["--upgrade"]):
        complain(f"usage: deploy/lock [--upgrade]\n\n{__doc__}")
        return 2
    try:
        virtualenv.ensure()
    except virtualenv.SetupError as error:
        complain(str(error))
        return 2
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    for file in FILES:
        done = subprocess.run(command(file, upgrade=bool(arguments)), cwd=ROOT, env=environment)
        if done.returncode != 0:
            return 1
        say(f"{lock_of(file).relative_to(ROOT)}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
