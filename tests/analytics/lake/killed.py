"""An ingest that is killed at a step.

`python -m tests.analytics.lake.killed LAKE STORE BATCH_BYTES STEP NTH`: the process sends itself
SIGKILL when the step has been done for the NTH time; the step `writing` is a file half written.
"""

from __future__ import annotations

import os
import signal
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from analytics.lake import gold
from analytics.lake.bodies import BodyRules
from analytics.lake.ingest import Ingest, Source
from analytics.lake.place import LakePlace

if TYPE_CHECKING:
    from collections.abc import Iterator

WRITING = "writing"


def main(arguments: list[str]) -> int:
    lake, store, batch_bytes, step, nth = arguments
    left = int(nth)

    def on_step(name: str) -> None:
        nonlocal left
        left -= name == step
        if name == step and not left:
            os.kill(os.getpid(), signal.SIGKILL)

    new_file = LakePlace.new_file

    @contextmanager
    def new_file_or_die(place: LakePlace, name: str, path: str) -> Iterator[Any]:
        with new_file(place, name, path) as stream:
            stream.write(b"PAR1")
            stream.flush()
            on_step(WRITING)
            stream.seek(0)
            yield stream

    LakePlace.new_file = new_file_or_die  # type: ignore[method-assign, assignment]
    source = Source("broker-a", Path(store), None, BodyRules())
    place = LakePlace.of(lake, None, {})
    ingest = Ingest(place, source, batch_bytes=int(batch_bytes), observer=on_step)
    gold.FILES_A_DAY_MAX = 3
    while ingest.batch() is not None:
        with place.locked():
            gold.bring_up(place, observer=on_step)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
