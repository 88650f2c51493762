"""Compare the broker's cost per message with other brokers' or another checkout's (--against)."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from tools.bench import cells, checkout_comparison, contenders, peer_comparison


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m tools.bench",
        description=f"{__doc__}\n\n{peer_comparison.__doc__}\n{checkout_comparison.__doc__}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--against", type=Path, help="another checkout of this project")
    parser.add_argument(
        "--rounds", type=int, help="number of starts of each broker (3; --against: 5)"
    )
    parser.add_argument(
        "--quick", action="store_true", help="run four cells, two brokers and one round"
    )
    parser.add_argument(
        "--cells", help="comma-separated: " + ", ".join(one.key for one in cells.CELLS)
    )
    parser.add_argument("--brokers", help="comma-separated: " + ", ".join(contenders.NAMES))
    parser.add_argument(
        "--seconds", type=float, help="length of a slice (1; --quick: 0.5; --against: 0.2)"
    )
    parser.add_argument(
        "--store-gib",
        type=float,
        default=4.0,
        help="size of the initial store (4); 0 for an empty store",
    )
    parser.add_argument(
        "--directory", type=Path, help="directory for the stores, about 30 GB (/tmp)"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every slice to this file")
    parser.add_argument(
        "--write",
        type=Path,
        metavar="DOCS",
        help="write results/comparison.json to this directory and update its pages",
    )
    return parser.parse_args()


def main() -> int:
    arguments = parse()
    return (
        checkout_comparison.main(arguments)
        if arguments.against
        else peer_comparison.main(arguments)
    )


if __name__ == "__main__":
    sys.exit(main())
