from __future__ import annotations

from broker_core.grpc_messages import descriptors
from tools import protos


def test_the_descriptors_match_the_proto_files() -> None:
    assert descriptors.files() == protos.compiled(), "run python -m tools.protos"


def test_the_proto_files_keep_their_licence() -> None:
    for path in protos.PROTO.rglob("*.proto"):
        assert path.read_text().startswith("// Licensed to the Apache Software Foundation (ASF)")
