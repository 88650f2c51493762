"""The first step of deploy/up, harden, backup, restore and test: switches from any Python to
.venv's.

Standard library only.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import subprocess
import sys
import time
from typing import TYPE_CHECKING

from broker_core.environment import without_secrets
from deploy.archive import options as backup_options
from deploy.checks import options as checks
from deploy.install import requirements, virtualenv
from deploy.settings import options, secret_files, variables
from deploy.terminal.output import complain
from deploy.terminal.translation import translated

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

COLLECTOR = "TREBUCHET_OTLP_ENDPOINT"
"""If set, the console needs OpenTelemetry's SDK."""
COPYING: dict[str, Callable[[Sequence[str]], object]] = {
    "backup": backup_options.parse_backup,
    "restore": backup_options.parse_restore,
}
"""Commands that check their arguments before anything is installed."""
STARTED_AT = "TREBUCHET_STARTED_AT"
"""When the command was typed, on the machine's monotonic clock (seconds)."""


def wanted(environment: Mapping[str, str]) -> list[Path]:
    """Return additional requirements files for an appliance's settings."""
    files = [requirements.OTLP] if environment.get(COLLECTOR) else []
    if variables.is_connect_server(environment):
        files.append(requirements.CONNECT)
    return files


@contextlib.contextmanager
def compiling(python: Path) -> Iterator[None]:
    """Compile the broker's native parts in the background; the build reports missing tools."""
    if os.environ.get("TREBUCHET_NATIVE") == "0":
        yield
        return
    command = [str(python), "-m", "broker_core.native.build"]
    environment = without_secrets(os.environ)
    process = subprocess.Popen(command, cwd=requirements.ROOT, env=environment)
    try:
        yield
    except BaseException:
        process.terminate()
        raise
    finally:
        process.wait()


def ready(*files: Path) -> Path:
    """Install the files' locks while the broker's native parts are compiled.

    Returns the environment's Python.

    Raises:
        SetupError: see virtualenv.
    """
    with virtualenv.made() as python, compiling(python):
        virtualenv.install(*files)
    return python


def main(arguments: list[str]) -> int:
    os.environ.setdefault(STARTED_AT, str(time.monotonic()))
    command, *rest = arguments
    try:
        if command == "up":
            # Before starting any process, so that none inherits them.
            secrets = secret_files.take(os.environ)
            asked = options.parse(rest)
            user = asked.user
            # Programs started later read their settings from variables.
            os.environ.update(asked.chosen)
            for name, meant in variables.unknown(os.environ):
                sentence = translated("WARNING unknown setting {name} ignored", name=name)
                if meant is not None:
                    sentence = translated(
                        "WARNING unknown setting {name} ignored; did you mean {meant}?",
                        name=name,
                        meant=meant,
                    )
                complain(sentence)
            gives_root_up = os.geteuid() == 0 and user != "root"
            if os.geteuid() != 0 and user not in (None, pwd.getpwuid(os.geteuid()).pw_name):
                raise options.OptionError(
                    translated(
                        "Only root can start an appliance as another user; leave out the user "
                        "{user!r} (--user, TREBUCHET_USER), or use sudo.",
                        user=user,
                    )
                )
            if gives_root_up:
                # The appliance's user must be able to read the environment.
                os.umask(os.umask(0o022) & 0o022)
            python = ready(requirements.RUN, *wanted(os.environ))
            secret_files.pass_on(secrets, os.environ)
            module = "deploy.commands.up_as_root" if gives_root_up else "deploy.commands.up"
        elif command == "harden":
            python = ready(requirements.RUN)
            module = "deploy.commands.harden"
        elif command in COPYING:
            COPYING[command](rest)
            python = virtualenv.ensure(requirements.RUN)
            module = f"deploy.commands.{command}"
        else:
            checks.parse(rest)
            python = ready(requirements.RUN, requirements.TEST)
            module = "deploy.commands.test"
    except (options.OptionError, virtualenv.SetupError) as error:
        complain(str(error))
        return 2
    except KeyboardInterrupt:
        return 130
    # The children find .venv's tools without activation.
    os.environ["PATH"] = f"{python.parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}"
    os.execv(python, [str(python), "-m", module, *rest])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
