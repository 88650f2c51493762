"""All targets, by their names."""

from __future__ import annotations

from tools.fuzz import disk, documents, grpc_port, texts, wire

TARGETS = {
    target.name: target
    for module in (wire, grpc_port, texts, disk, documents)
    for target in module.TARGETS
}
