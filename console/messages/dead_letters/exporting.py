"""Dead letters as files: CSV, and JSON lines with their bodies."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from django.http import HttpRequest, HttpResponse
from django.utils.translation import gettext as _

from broker_core.message import names
from console.accounts.actions import Action as Allowed
from console.accounts.permissions import require
from console.lib.csv_file import csv_lines
from console.lib.missing import MissingError
from console.messages.dead_letters.services import chosen_of
from console.people.audit.record import done

if TYPE_CHECKING:
    from collections.abc import Sequence

    from console.messages.dead_letters.reading import DeadLetter

EXPORTS = {"csv": "text/csv; charset=utf-8", "jsonl": "application/x-ndjson; charset=utf-8"}
HEAD = (
    *("stored", "broker", "queue", "offset", "topic", "tag", "keys", "unique key", "retries"),
    *("size", "state"),
)


def export_letters(request: HttpRequest, group: str, kind: str) -> HttpResponse:
    """Return a file of dead letters, and record the export."""
    if kind not in EXPORTS:
        raise MissingError(_("Dead letters can be exported as csv or jsonl."))
    require(request, Allowed.EXPORT, names.dlq_topic(group))
    _selection, letters, _before = chosen_of(request, group, again=True)
    done(request, "dead-letter.export", group)
    if kind == "csv":
        text = "".join(csv_lines(HEAD, map(values_of, letters)))
    else:
        text = jsonl_text(letters)
    answer = HttpResponse(text, content_type=EXPORTS[kind])
    answer["Content-Disposition"] = f'attachment; filename="dead-letters.{kind}"'
    return answer


def values_of(letter: DeadLetter) -> tuple[str, ...]:
    stored = letter.copy.stored
    return (
        str(stored.store_ms),
        stored.broker_name,
        str(stored.queue_id),
        str(stored.queue_offset),
        letter.topic,
        letter.tag,
        stored.keys,
        stored.uniq_key,
        str(stored.reconsume_times),
        str(stored.body_bytes),
        letter.item.outcome if letter.item else "open",
    )


def jsonl_text(letters: Sequence[DeadLetter]) -> str:
    lines = []
    for each in letters:
        stored = each.copy.stored
        row: dict[str, Any] = dict(zip(HEAD, values_of(each), strict=True))
        row["properties"] = dict(stored.properties)
        row["otherProperties"] = stored.other_properties
        # Bytes that aren't text are written as hex; a compressed body is inflated.
        try:
            row["body"] = None if stored.body is None else stored.body.decode()
        except UnicodeDecodeError:
            row["bodyHex"] = (stored.body or b"").hex()
        row["bodyIsCut"] = stored.is_cut
        lines.append(json.dumps(row, ensure_ascii=False))
    return "".join(f"{line}\n" for line in lines)
