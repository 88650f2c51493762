"""The content or action of a page as text to copy: command lines, Python, JSON."""

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
    """A text to copy; the label names its format."""

    label: str
    text: str


def name_servers() -> str:
    return ";".join(settings.TREBUCHET_NAMESRV)


def mqadmin(command: str, options: dict[str, object]) -> str:
    """Return a command line for mqadmin 4.9.7, quoted for a shell.

    A value of None is an option without a value. The options of each command are tested against
    RocketMQ's mqadmin in tests/interop/mqadmin_cases.py; don't use others.
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
    """Return a REST API request for a page's data, with the token in the environment."""
    address = settings.TREBUCHET_URL + reverse(f"api:v1:{operation}", args=arguments)
    python = (
        "import json, os\nfrom urllib.request import Request, urlopen\n\n"
        f"request = Request({json.dumps(address)})\n"
        f'request.add_header("Authorization", "Bearer " + os.environ["{TOKEN}"])\n'
        "answer = json.load(urlopen(request))"
    )
    curl = f'curl -H "Authorization: Bearer ${TOKEN}" {shlex.quote(address)}'
    return [CopyText("curl", curl), CopyText("Python", python)]
