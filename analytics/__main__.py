"""`python -m analytics REPORT --store DIR --out DIR`: run one report in one process.

`describe` prints the available reports (see analytics.reports.describe); `serve` runs jobs in one
warm session (see analytics.serve).

Standard output carries only JSON, one line for each event of a run (see analytics.progress). Spark
and Java write to standard error. Exit codes: 0 done, 1 failed, 2 bad arguments, 130 and 143
cancelled by SIGINT and SIGTERM with nothing published.
"""

from __future__ import annotations

import json
import os
import sys
from typing import TYPE_CHECKING

from analytics.arguments import SERVE, parse_arguments
from analytics.reports.catalog import REPORTS
from analytics.reports.describe import catalog

if TYPE_CHECKING:
    from collections.abc import Sequence


def main(arguments: Sequence[str]) -> int:
    if list(arguments) == [SERVE]:
        words: Sequence[str] = ()
    elif parse_arguments(arguments) is None:
        print(json.dumps(catalog(REPORTS.values()), ensure_ascii=False, indent=2))
        return 0
    else:
        words = arguments
    # Importing Spark takes half a second, and the catalogue doesn't need it.
    sys.stdout.flush()
    os.execv(sys.executable, [sys.executable, "-m", "analytics.serve", *words])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
