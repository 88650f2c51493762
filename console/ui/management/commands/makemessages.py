"""`manage.py makemessages`: update the message catalogues; needs GNU gettext (Debian: gettext).

Django's command with our folders: Python and templates go to `django.po`, scripts to `djangojs.po`,
for every language in the settings. Run it whenever the text of a page changes.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from django.conf import settings
from django.core.management.commands import makemessages
from django.utils import translation

if TYPE_CHECKING:
    from argparse import ArgumentParser

ROOT = Path(__file__).resolve().parents[4]
# The console translates the reports' descriptions.
FOLDERS = ("console", "analytics")
# Each catalogue with the file extensions it is extracted from.
DOMAINS = {"django": ["html", "py"], "djangojs": ["js"]}
# A date would make every run a change.
DATE_LINE = '"POT-Creation-Date:'


class Command(makemessages.Command):
    """Collects the messages of the console and the reports."""

    # Fuzzy matches for changed sentences are rarely right.
    msgmerge_options = ["-q", "--backup=none", "--no-fuzzy-matching", "--update"]

    help = "Update the message catalogues of the console; needs GNU gettext"

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Take no arguments, since there is only one set of catalogues."""

    def find_files(self, root: str) -> list[makemessages.TranslatableFile]:
        """Return the files of our folders; ignored patterns would also ignore their subfolders."""
        return sorted(
            file for folder in FOLDERS for file in super(Command, self).find_files(folder)
        )

    def handle(self, *args: Any, **options: Any) -> None:
        locale = Path(settings.LOCALE_PATHS[0])
        languages = [translation.to_locale(code) for code, _name in settings.LANGUAGES]
        os.chdir(ROOT)
        for domain, extensions in DOMAINS.items():
            super().handle(
                verbosity=options["verbosity"],
                locale=languages,
                exclude=[],
                all=False,
                domain=domain,
                extensions=extensions,
                symlinks=False,
                ignore_patterns=["vendor/*"],
                use_default_ignore_patterns=True,
                no_wrap=False,
                no_location=False,
                add_location="file",
                no_obsolete=True,
                keep_pot=False,
            )
        for catalogue in locale.rglob("*.po"):
            lines = catalogue.read_text(encoding="utf-8").splitlines(keepends=True)
            catalogue.write_text(
                "".join(line for line in lines if not line.startswith(DATE_LINE)), encoding="utf-8"
            )
