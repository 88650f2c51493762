"""`python -m analytics REPORT --store DIR --out DIR`: one report, as one process.

`python -m analytics describe` prints what reports there are (see analytics.reports.describe).

Standard output carries JSON only, of a run one line for each event (see analytics.progress); Spark
and Java write to standard error. Exit codes: 0 done, 1 failed, 2 bad arguments, 130 and 143
cancelled by SIGINT and SIGTERM with nothing published.
"""

from __future__ import annotations

import json
import os
import sys
from typing import TYPE_CHECKING

from analytics.arguments import EXIT_BAD_ARGUMENTS, EXIT_FAILED, parse_arguments
from analytics.errors import ReportError
from analytics.guest import is_guest
from analytics.progress import ProgressLines
from analytics.report_from_lake import answer
from analytics.report_from_samples import answer_from_samples
from analytics.reports.catalog import REPORTS
from analytics.reports.describe import catalog
from analytics.topics import require_topic
from broker_core.log_lines import log_to_stderr

if TYPE_CHECKING:
    from collections.abc import Sequence

# Somebody waits for the answer, so this is no guest as Spark is; the broker comes first.
NICENESS = 10


def main(arguments: Sequence[str]) -> int:
    request = parse_arguments(arguments)
    if request is None:
        print(json.dumps(catalog(REPORTS.values()), ensure_ascii=False, indent=2))
        return 0
    try:
        require_topic(request)
    except ReportError as error:
        ProgressLines(sys.stdout).failed(str(error))
        return EXIT_FAILED
    because: list[str] = []
    if request.lake is not None or request.report.samples is not None:
        lines = ProgressLines(sys.stdout)
        try:
            guest = is_guest()
        except ReportError as error:
            lines.failed(str(error))
            return EXIT_BAD_ARGUMENTS
        if guest:
            os.nice(NICENESS)
        log_to_stderr("%(levelname)s %(name)s: %(message)s")
        if request.report.samples is not None:
            try:
                answer_from_samples(request, lines)
            except ReportError as error:
                lines.failed(str(error))
                return EXIT_FAILED
            return 0
        refusal = answer(request, lines)
        if refusal is None:
            return 0
        because = ["--because", json.dumps(refusal)]
    # Spark and what comes with it take half a second to import; the lake's answer needs none of it.
    sys.stdout.flush()
    command = [sys.executable, "-m", "analytics.report_on_spark", *arguments, *because]
    os.execv(sys.executable, command)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
