"""The gateway is the only part of the console that connects to brokers."""

from __future__ import annotations

import ast
from pathlib import Path

CONSOLE = Path(__file__).resolve().parents[3] / "console"
GATEWAY = CONSOLE / "gateway"
WIRE = (
    "broker_core.grpc_messages",
    "broker_core.http2",
    "broker_core.protocol",
    "broker_core.remoting",
)


def test_no_page_uses_the_wire_protocol() -> None:
    files = [path for path in CONSOLE.rglob("*.py") if GATEWAY not in path.parents]
    assert len(files) > 50

    wrong = [
        f"{path.relative_to(CONSOLE)}:{node.lineno}"
        for path in files
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(WIRE)
    ]

    assert wrong == []
