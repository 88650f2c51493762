"""The first step of deploy/up or deploy/test: from any Python to the one in .venv.

Standard library only.
"""

from __future__ import annotations

import os
import sys
import time

from deploy import checks, options, virtualenv
from deploy.terminal import complain

REQUIREMENTS = virtualenv.ROOT / "requirements.txt"
TEST_REQUIREMENTS = virtualenv.ROOT / "tests" / "requirements.txt"
STARTED_AT = "TREBUCHET_STARTED_AT"
"""When the command was typed, on the machine's monotonic clock (seconds)."""


def main(arguments: list[str]) -> int:
    os.environ.setdefault(STARTED_AT, str(time.monotonic()))
    command, *rest = arguments
    try:
        if command == "up":
            options.parse(rest)
            python = virtualenv.ensure(REQUIREMENTS)
            module = "deploy.appliance"
        else:
            checks.parse(rest)
            python = virtualenv.ensure(REQUIREMENTS, TEST_REQUIREMENTS)
            module = "deploy.gate"
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
