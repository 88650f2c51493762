"""The names of client versions.

Source: common/MQVersion.java (5.3.3), whose enum numbers them in their order.
"""

from __future__ import annotations

V4_1_0_SNAPSHOT = 232
"""From here on each minor version has patches 0 to 9, each a snapshot and a release."""
V5_9_9 = 611
PER_MINOR = 20


def version_text(version: int) -> str:
    """Return the name as the original's metrics write it, in small letters."""
    if version > V5_9_9:
        return "higher_version"
    place = version - V4_1_0_SNAPSHOT
    if place < 0:
        return "before_v4_1_0"
    minors, rest = divmod(place, PER_MINOR)
    major, minor = divmod(41 + minors, 10)
    patch, is_release = divmod(rest, 2)
    return f"v{major}_{minor}_{patch}{'' if is_release else '_snapshot'}"
