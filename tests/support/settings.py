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
from console.settings import DATABASES

if DATABASES["default"]["ENGINE"].endswith("sqlite3"):
    # In memory, where Django would put it, threads share tables without waiting for each other:
    # "database table is locked". A file is what the console has, and its threads do wait.
    DATABASES["default"]["TEST"] = {"NAME": f"{os.environ['TREBUCHET_TEST_DATA']}/tests.sqlite3"}
