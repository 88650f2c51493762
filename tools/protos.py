"""Compile the published .proto files: `python -m tools.protos` writes descriptors.py."""

from __future__ import annotations

import base64
import tempfile
import textwrap
import zlib
from functools import cache
from pathlib import Path
from typing import Any

import grpc_tools
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from grpc_tools import protoc

from broker_core.grpc_messages import descriptors
from tests.support.sources import ROOT

PROTO = ROOT / "broker_core" / "grpc_messages" / "proto"
WRITTEN = ROOT / "broker_core" / "grpc_messages" / "descriptors.py"
PACKAGE = "apache.rocketmq.v2"
COLUMNS = 96


def compiled() -> dict[str, bytes]:
    """Return each file's FileDescriptorProto by its name, imported files first."""
    with tempfile.TemporaryDirectory() as directory:
        out = Path(directory, "descriptors")
        code = protoc.main(
            [
                "protoc",
                f"-I{PROTO}",
                f"-I{Path(grpc_tools.__file__).parent / '_proto'}",
                "--include_imports",
                f"--descriptor_set_out={out}",
                *(str(path.relative_to(PROTO)) for path in sorted(PROTO.rglob("*.proto"))),
            ]
        )
        assert code == 0
        found = descriptor_pb2.FileDescriptorSet.FromString(out.read_bytes())
    return {one.name: one.SerializeToString(deterministic=True) for one in found.file}


@cache
def pool() -> descriptor_pool.DescriptorPool:
    """Return the types of descriptors.py, for another implementation of protobuf."""
    made = descriptor_pool.DescriptorPool()
    for data in descriptors.files().values():
        made.AddSerializedFile(data)
    return made


@cache
def message_class(name: str, package: str = PACKAGE) -> Any:
    """Return the class of a message, by Google's implementation."""
    return message_factory.GetMessageClass(pool().FindMessageTypeByName(f"{package}.{name}"))


def main() -> None:
    packed = b"".join(
        len(part).to_bytes(4, "big") + part
        for name, data in compiled().items()
        for part in (name.encode(), data)
    )
    text = base64.b85encode(zlib.compress(packed, 9)).decode()
    source = WRITTEN.read_text()
    start = source.index('_PACKED = """\\\n') + len('_PACKED = """\\\n')
    end = source.index('"""', start)
    WRITTEN.write_text(
        source[:start] + "\n".join(textwrap.wrap(text, COLUMNS)) + "\n" + source[end:]
    )


if __name__ == "__main__":
    main()
