"""The console's settings with a data directory of the test run's own.

What an appliance in this checkout has written, or is writing, must not be what tests read.
"""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile

if "TREBUCHET_TEST_DATA" not in os.environ:  # a process that a test starts uses its parent's
    directory = tempfile.mkdtemp(prefix="trebuchet-tests-")
    os.environ["TREBUCHET_TEST_DATA"] = os.environ["TREBUCHET_DATA"] = directory
    atexit.register(shutil.rmtree, directory, ignore_errors=True)

from console.settings import *  # noqa: F403
