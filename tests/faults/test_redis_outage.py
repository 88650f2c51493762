"""Redis is down for longer than each first back-off: only reports wait, then they resume."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest

from tests.faults.conftest import skip_without
from tests.support.long_timeouts import PATIENCE_S
from tools.faults import redis_outage

if TYPE_CHECKING:
    from pathlib import Path

    from tools.faults.real_clients import Programs


@pytest.mark.fault
@pytest.mark.interop
def test_everything_except_reports_continues_without_redis_and_they_resume_later(
    tmp_path: Path, programs: Programs | None
) -> None:
    if redis_outage.missing():
        pytest.skip(f"NOT TESTED: an appliance without Redis, which needs {redis_outage.missing()}")

    found = redis_outage.run(tmp_path, programs=programs)

    sys.stdout.write(f"{found}\n")
    assert max(found.pages, found.made) < PATIENCE_S
    assert found.gone >= redis_outage.GONE_SECONDS
    assert found.history.acknowledged > 100
    if programs is not None:
        # The Java and the Go client return some messages, which raw ones never do.
        assert found.history.explained["returned"] > 0
    skip_without(programs)
