"""Names of client versions."""

from __future__ import annotations

import pytest

from broker_core.message.versions import version_text
from broker_core.protocol import codes


@pytest.mark.parametrize(
    ("version", "text"),
    [
        (codes.V4_1_0_SNAPSHOT, "v4_1_0_snapshot"),
        (codes.V4_9_3, "v4_9_3"),
        (codes.V4_9_4, "v4_9_4"),
        (codes.V4_9_7, "v4_9_7"),
        (413, "v5_0_0"),
        (611, "v5_9_9"),
        (612, "higher_version"),
        (1 << 40, "higher_version"),
        (0, "before_v4_1_0"),
        (-5, "before_v4_1_0"),
    ],
)
def test_a_version_has_the_originals_name(version: int, text: str) -> None:
    assert version_text(version) == text
