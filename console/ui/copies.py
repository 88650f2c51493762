"""What a page shows or does, as text for elsewhere: command lines, Python, JSON."""

from __future__ import annotations

import json
import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING

from django.conf import settings
from django.urls import reverse
from django.utils.translation import gettext as _

if TYPE_CHECKING:
    from collections.abc import Iterable

TOKEN = "TREBUCHET_TOKEN"


@dataclass(frozen=True, slots=True)
class CopyText:
    """One thing to copy; the label says as what."""

    label: str
    text: str


def name_servers() -> str:
    return ";".join(settings.TREBUCHET_NAMESRV)


def mqadmin(command: str, options: dict[str, object]) -> str:
    """Return a command line of mqadmin 4.9.7, as a shell takes it.

    A value of None is an option without one. Which options a command has is tried against the
    original in tests/interop/mqadmin_cases.py; use no others.
    """
    words = ["mqadmin", command, "-n", name_servers()]
    for option, value in options.items():
        words.append(f"-{option}")
        if isinstance(value, bool):
            words.append(str(value).lower())
        elif value is not None:
            words.append(str(value))
    return shlex.join(words)


def mqadmin_text(lines: Iterable[str], label: str = "mqadmin") -> CopyText:
    return CopyText(label, "\n".join(lines))


def plain_text(value: str) -> CopyText:
    return CopyText(_("Name"), value)


def json_text(value: object) -> CopyText:
    return CopyText("JSON", json.dumps(value, indent=2, ensure_ascii=False))


def api_texts(operation: str, *arguments: object) -> list[CopyText]:
    """Return what asks the REST API for what a page shows, with a token in the environment."""
    address = settings.TREBUCHET_URL + reverse(f"api:v1:{operation}", args=arguments)
    python = (
        "import json, os\nfrom urllib.request import Request, urlopen\n\n"
        f"request = Request({json.dumps(address)})\n"
        f'request.add_header("Authorization", "Bearer " + os.environ["{TOKEN}"])\n'
        "answer = json.load(urlopen(request))"
    )
    curl = f'curl -H "Authorization: Bearer ${TOKEN}" {shlex.quote(address)}'
    return [CopyText("curl", curl), CopyText("Python", python)]
