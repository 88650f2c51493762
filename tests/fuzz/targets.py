"""All targets, by their names."""

from __future__ import annotations

from tests.fuzz import disk, documents, texts, wire

TARGETS = {
    target.name: target for module in (wire, texts, disk, documents) for target in module.TARGETS
}
