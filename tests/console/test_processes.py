"""Resource use of processes, as /proc reports it."""

from __future__ import annotations

import subprocess
import sys

from console.processes import memory_of_session
from tests.support.waiting import until

MB = 1_000_000
# The second process has left the process group, like Spark's workers, but not the session.
HOLDS = """
import os, sys
held = b"x" * int(sys.argv[1])
if os.fork() == 0:
    os.setpgid(0, 0)
    more = b"y" * int(sys.argv[1])
    print("ready", flush=True)
sys.stdin.read()
"""


def test_the_memory_of_a_session_is_that_of_all_its_processes() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", HOLDS, str(40 * MB)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,
    ) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        assert process.stdout.readline() == b"ready\n"

        used = memory_of_session(process.pid)

        process.stdin.close()

    # The first block is in both of them.
    assert 120 * MB <= used < 400 * MB
    until(lambda: memory_of_session(process.pid) == 0, "the second process to end, too")
