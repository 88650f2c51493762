"""Render the marked parts of README and docs from docs/results.

python -m tools.results           after a change of docs/results/*.json or of a table
python -m tools.results --check   exit code 1 if a page differs
"""

from __future__ import annotations

import argparse
import sys

from tests.support.sources import ROOT
from tools.results import pages

DOCS = ROOT / "docs"


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tools.results",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--check", action="store_true", help="only check that the pages are current; write nothing"
    )
    if parser.parse_args().check:
        stale = [
            page
            for page in pages.pages(DOCS)
            if pages.rendered(page.read_text(), DOCS) != page.read_text()
        ]
        for page in stale:
            print(f"{page.relative_to(ROOT)} is stale; run python -m tools.results")
        return 1 if stale else 0
    for page in pages.render(DOCS):
        print(page.relative_to(ROOT))
    return 0


if __name__ == "__main__":
    sys.exit(main())
