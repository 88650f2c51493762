"""The names of client versions.

Source: common/MQVersion.java (5.3.3), where the enum order defines the numbers.
"""

from __future__ import annotations

V4_1_0_SNAPSHOT = 232
"""From here on, each minor version has patches 0 to 9, and each patch a snapshot and a release."""
V5_0_0 = 413
V5_9_9 = 611
PER_MINOR = 20


def version_text(version: int) -> str:
    """Return the name as in RocketMQ's metrics, in lower case."""
    if version > V5_9_9:
        return "higher_version"
    place = version - V4_1_0_SNAPSHOT
    if place < 0:
        return "before_v4_1_0"
    minors, rest = divmod(place, PER_MINOR)
    major, minor = divmod(41 + minors, 10)
    patch, is_release = divmod(rest, 2)
    return f"v{major}_{minor}_{patch}{'' if is_release else '_snapshot'}"


def version_number(text: str) -> int:
    """Return the number of a version such as "5.1.2"; for any other text, the number of 5.0.0."""
    parts = text.split(".")[:3]
    if len(parts) < 3 or not all(part.isascii() and part.isdecimal() for part in parts):
        return V5_0_0
    major, minor, patch = (min(int(part[:4]), 9) for part in parts)
    number = V4_1_0_SNAPSHOT + (10 * major + minor - 41) * PER_MINOR + 2 * patch + 1
    return min(max(number, V4_1_0_SNAPSHOT), V5_9_9)
