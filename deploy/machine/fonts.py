"""A font with Chinese characters for images of reports; needed only if the language is Chinese.

The console's own font has only Latin letters. Browsers bring their own fonts, but image files
can't.
"""

from __future__ import annotations

from console.observe.alerts import fonts
from deploy.machine import system_packages
from deploy.terminal.output import say
from deploy.terminal.translation import CHINESE, language, translated


def is_missing() -> bool:
    return language() == CHINESE and not fonts.files(fonts.CHINESE)


def install() -> None:
    """Install Debian's smallest Chinese font if needed and allowed."""
    if is_missing() and system_packages.may_install():
        system_packages.install(fonts.PACKAGE)


def ensure() -> None:
    """Find or install a font; if there is none, say how to add it."""
    install()
    if is_missing():
        say(
            translated(
                "No installed font has Chinese characters, so images of reports are in English, "
                "with codes for Chinese names. To install one, run: {command}.",
                command=system_packages.command_for(fonts.PACKAGE),
            )
        )
