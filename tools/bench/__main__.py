"""What a message costs the broker: beside the real ones, or --against another checkout."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from tools.bench import against, cells, compared, contenders


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m tools.bench",
        description=f"{__doc__}\n\n{compared.__doc__}\n{against.__doc__}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--against", type=Path, help="another checkout of this project")
    parser.add_argument("--rounds", type=int, help="starts of each broker (3; --against: 5)")
    parser.add_argument("--quick", action="store_true", help="four cells, two brokers, one round")
    parser.add_argument("--cells", help="by comma: " + ", ".join(one.key for one in cells.CELLS))
    parser.add_argument("--brokers", help="by comma: " + ", ".join(contenders.NAMES))
    parser.add_argument(
        "--seconds", type=float, help="of a slice (1; --quick: 0.5; --against: 0.2)"
    )
    parser.add_argument(
        "--store-gib", type=float, default=4.0, help="of the store to start with (4), 0 for none"
    )
    parser.add_argument("--directory", type=Path, help="for the stores: some 30 GB; default: /tmp")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every slice there")
    parser.add_argument(
        "--write",
        type=Path,
        metavar="DOCS",
        help="write results/comparison.json there, and its pages",
    )
    return parser.parse_args()


def main() -> int:
    asked = parse()
    return against.main(asked) if asked.against else compared.main(asked)


if __name__ == "__main__":
    sys.exit(main())
