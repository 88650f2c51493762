"""The console's settings with a data directory for this test run.

Tests must not read the files of an appliance that runs in this checkout.
"""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile

if "TREBUCHET_TEST_DATA" not in os.environ:  # child processes use their parent's
    directory = tempfile.mkdtemp(prefix="trebuchet-tests-")
    os.environ["TREBUCHET_TEST_DATA"] = os.environ["TREBUCHET_DATA"] = directory
    atexit.register(shutil.rmtree, directory, ignore_errors=True)

from console.settings import *  # noqa: F403
from console.settings import DATABASES

if DATABASES["default"]["ENGINE"].endswith("sqlite3"):
    # In memory, Django's default, threads share tables without waiting for each other and fail with
    # "database table is locked". The console uses a file, where its threads do wait.
    DATABASES["default"]["TEST"] = {"NAME": f"{os.environ['TREBUCHET_TEST_DATA']}/tests.sqlite3"}

# Tests that need a lake enable it.
TREBUCHET_LAKE = ""
