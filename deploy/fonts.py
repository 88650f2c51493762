"""A font with Chinese letters, for pictures of reports: only who starts us in Chinese needs one.

The console has its own font, of Latin letters; browsers bring theirs, pictures as files cannot.
"""

from __future__ import annotations

from console.alerts import fonts
from deploy import system_packages
from deploy.terminal import say
from deploy.words import CHINESE, language, told


def is_missing() -> bool:
    return language() == CHINESE and not fonts.files(fonts.CHINESE)


def install() -> None:
    """Install Debian's smallest where one is missing and that is allowed."""
    if is_missing() and system_packages.may_install():
        system_packages.install(fonts.PACKAGE)


def ensure() -> None:
    """Find or install one; without it say how to add it."""
    install()
    if is_missing():
        say(
            told(
                "No font here has Chinese letters: pictures of reports are in English, with codes "
                "for Chinese names. To have them: {command}.",
                command=system_packages.command_for(fonts.PACKAGE),
            )
        )
