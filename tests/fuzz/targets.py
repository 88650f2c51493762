"""All targets, by their names."""

from __future__ import annotations

from tests.fuzz import disk, documents, http2, texts, wire

TARGETS = {
    target.name: target
    for module in (wire, http2, texts, disk, documents)
    for target in module.TARGETS
}
