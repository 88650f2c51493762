"""The corpus: frames that real clients sent, in one file per client.

A file is compressed JSON lines, each with a frame and its origin; tests/golden/frames/record.py
writes it.
"""

from __future__ import annotations

import base64
import json
import lzma
from pathlib import Path
from typing import NamedTuple

DIRECTORY = Path(__file__).resolve().parents[1] / "golden" / "frames"
SUFFIX = ".jsonl.xz"


class Recorded(NamedTuple):
    """One frame.

    Attributes:
        client: the client that sent it, with its version.
        to: the port that received it: "broker", "vip" or "namesrv".
        answers: for an answer, the code of the broker's request; None for a request.
        real: the code of a real 4.9.7's answer; None when it doesn't answer.
    """

    client: str
    to: str
    code: int
    answers: int | None
    real: int | None
    frame: bytes


def read(client: str) -> list[Recorded]:
    """Return a client's frames in order of arrival."""
    text = lzma.decompress((DIRECTORY / f"{client}{SUFFIX}").read_bytes()).decode()
    found = []
    for line in text.splitlines():
        fields = json.loads(line)
        frame = base64.b64decode(fields.pop("frame"))
        found.append(Recorded(client=client, frame=frame, **fields))
    return found


def write(client: str, frames: list[Recorded]) -> None:
    """Write a client's file."""
    lines = []
    for one in frames:
        fields = one._asdict()
        del fields["client"]
        fields["frame"] = base64.b64encode(one.frame).decode()
        lines.append(json.dumps(fields))
    data = lzma.compress("\n".join(lines).encode(), preset=9)
    (DIRECTORY / f"{client}{SUFFIX}").write_bytes(data)


def clients() -> list[str]:
    """Return the clients that have a file."""
    return sorted(path.name.removesuffix(SUFFIX) for path in DIRECTORY.glob(f"*{SUFFIX}"))


def everything() -> list[Recorded]:
    """Return the frames of all clients."""
    return [one for client in clients() for one in read(client)]
