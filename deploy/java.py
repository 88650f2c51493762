"""The Java that reports run on: installed when missing, where that is allowed."""

from __future__ import annotations

import os

from analytics.java import JAVA_VERSION_MIN, PACKAGE, JavaMissingError, require_java
from deploy import system_packages
from deploy.terminal import say
from deploy.words import told


def missing() -> str | None:
    """Return None when there is a usable Java, otherwise why not, as the end of a sentence."""
    try:
        require_java()
    except JavaMissingError as error:
        return error.reason
    return None


def install() -> None:
    """Install Java 17 or later where it is missing and that is allowed."""
    if missing() is None or "JAVA_HOME" in os.environ:
        return
    if system_packages.may_install():
        system_packages.install(PACKAGE)


def ensure() -> bool:
    """Find or install Java 17 or later; without it say once how to add it, and return False."""
    install()
    reason = missing()
    if reason is not None:
        say(
            told(
                "{reason}: everything but the reports works. To have them, "
                "install Java {version} or newer ({command}) and start again.",
                reason=f"{reason[0].upper()}{reason[1:]}",
                version=JAVA_VERSION_MIN,
                command=system_packages.command_for(PACKAGE),
            )
        )
    return reason is None
