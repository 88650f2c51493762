"""A file's entries by name, read from a broker or from edited text."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from django.utils.translation import gettext as _

from console.broker.files.schema import (
    AT,
    BROKER_OWNED,
    GROUP_FILTERS,
    KEYS,
    NAME_KEYS,
    NEEDED,
    is_brokers_own,
    problem_of_name,
)
from console.gateway.files import INT64_MAX, ConfigFile, parse, text_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

Entries: TypeAlias = dict[str, dict[str, Any]]
"""The entries of a file; offsets are strings, because JSON in browsers has no 64-bit integers."""

PROBLEMS_MAX = 50
QUEUE_ID_MAX = 65_535
OFFSET_DIGITS = len(str(INT64_MAX))
_AT_BYTE = re.compile(r"\(byte (\d+)\)")


@dataclass(frozen=True, slots=True)
class Problem:
    """A problem in a text, with its line if known."""

    text: str
    line: int | None = None


class FileProblemsError(ValueError):
    """The text isn't a valid file; `problems` lists why, by line."""

    def __init__(self, problems: list[Problem]) -> None:
        super().__init__(problems[0].text)
        self.problems = tuple(problems[:PROBLEMS_MAX])


def entries_in(file: ConfigFile, document: Mapping[str, Any]) -> Entries:
    """Return the entries of a broker's document."""
    table = document.get(file.table) or {}
    match file:
        case ConfigFile.TOPICS | ConfigFile.GROUPS:
            return {
                name: {key.name: values.get(key.name, default_of(key)) for key in KEYS[file]}
                for name, values in sorted(table.items())
            }
        case ConfigFile.OFFSETS:
            return {
                name: {queue: str(queues[queue]) for queue in sorted(queues, key=int)}
                for name, queues in sorted(table.items())
                if AT in name
            }
        case ConfigFile.DELAYS:
            return {
                str(int(level)): {"offset": str(int(table[level]))}
                for level in sorted(table, key=int)
            }
        case ConfigFile.FILTERS:
            return {
                name: {key.name: values.get(key.name, default_of(key)) for key in KEYS[file]}
                for name, values in sorted(filters_in(table).items())
            }


def filters_in(table: Mapping[str, Any]) -> dict[str, Any]:
    """Return a table's filters by topic and group."""
    return {
        f"{topic}{AT}{group}": values
        for topic, filters in table.items()
        for group, values in (filters.get(GROUP_FILTERS) or {}).items()
    }


def default_of(key: Any) -> Any:
    return None if key.default is NEEDED else key.default


def document_of(file: ConfigFile, entries: Entries) -> dict[str, Any]:
    """Return a document with these entries, without a data version."""
    name_key = NAME_KEYS.get(file)
    if name_key is not None:
        table: dict[str, Any] = {
            name: {**values, name_key: name} for name, values in entries.items()
        }
    elif file is ConfigFile.DELAYS:
        table = {level: int(values["offset"]) for level, values in entries.items()}
    elif file is ConfigFile.FILTERS:
        table = {}
        for name, values in entries.items():
            topic, _at, group = name.partition(AT)
            of_topic = table.setdefault(topic, {GROUP_FILTERS: {}, "topic": topic})
            of_topic[GROUP_FILTERS][group] = values
    else:
        table = {
            name: {queue: int(offset) for queue, offset in queues.items()}
            for name, queues in entries.items()
        }
    return {file.table: table}


def text_with(file: ConfigFile, entries: Entries) -> str:
    return text_of(file, document_of(file, entries))


def entries_of_text(file: ConfigFile, text: str) -> Entries:
    """Return the entries of an edited text.

    Raises:
        FileProblemsError: the text isn't a valid file.
    """
    try:
        document = parse(text)
    except ValueError as error:
        raise FileProblemsError([syntax_problem(text, error)]) from error
    table = document.get(file.table) if isinstance(document, dict) else None
    if not isinstance(table, dict):
        raise FileProblemsError(
            [Problem(_("A %(file)s must have an object %(table)s.") % words(file), line=1)]
        )
    lines = Lines(text)
    problems = list(problems_of_shape(table, lines)) if file is ConfigFile.FILTERS else []
    if not problems:
        flat = filters_in(table) if file is ConfigFile.FILTERS else table
        problems = list(problems_in(file, flat, lines))
    if problems:
        raise FileProblemsError(problems)
    if file is ConfigFile.OFFSETS:
        return {
            name: {str(int(queue)): str(int(queues[queue])) for queue in sorted(queues, key=int)}
            for name, queues in sorted(table.items())
        }
    return entries_in(file, document)


def words(file: ConfigFile) -> dict[str, str]:
    return {"file": str(file), "table": file.table}


def syntax_problem(text: str, error: ValueError) -> Problem:
    """Return the position of a JSON syntax error."""
    at = _AT_BYTE.search(str(error))
    line = text.encode()[: int(at[1])].count(b"\n") + 1 if at else None
    sentence = _AT_BYTE.sub("", str(error)).removeprefix("JSON is malformed: ").strip()
    return Problem(_("The file isn't valid JSON: %(reason)s.") % {"reason": sentence}, line)


class Lines:
    """Finds the line of an entry's key: quoted in JSON, plain in YAML."""

    def __init__(self, text: str, *, is_quoted: bool = True) -> None:
        self._lines = text.split("\n")
        self._pattern = '"{}"' if is_quoted else "{}:"

    def of(self, entry: str, key: str = "") -> int | None:
        start = self._first(entry, 0)
        if start is None and AT in entry:
            # A filter is nested below its topic.
            topic, _at, group = entry.partition(AT)
            above = self._first(topic, 0)
            start = None if above is None else self._first(group, above)
        if start is None or not key:
            return None if start is None else start + 1
        at = self._first(key, start)
        return start + 1 if at is None else at + 1

    def _first(self, word: str, start: int) -> int | None:
        rest = range(start, len(self._lines))
        if word.isdecimal():
            # Numeric keys may be unquoted too.
            number = re.compile(rf'(?<!\w)"?{word}"?\s*:')
            return next((at for at in rest if number.search(self._lines[at])), None)
        wanted = self._pattern.format(word)
        return next((at for at in rest if wanted in self._lines[at]), None)


def problems_of_shape(table: Mapping[str, Any], lines: Lines) -> Iterator[Problem]:
    """Yield the problems that prevent a table of filters from being read."""
    for topic, filters in table.items():
        if not isinstance(filters, dict) or not isinstance(filters.get(GROUP_FILTERS), dict):
            text = _("%(topic)s must have an object %(key)s with its groups.")
            yield Problem(text % {"topic": topic, "key": GROUP_FILTERS}, lines.of(topic))


def problems_in(file: ConfigFile, table: Mapping[str, Any], lines: Lines) -> Iterator[Problem]:
    for name, values in table.items():
        wrong = problem_of_name(file, name)
        # The broker's own entries have names that the rules don't allow.
        if wrong is not None and not is_brokers_own(file, name):
            yield Problem(f"{name}: {wrong}", lines.of(name))
        elif file is ConfigFile.DELAYS:
            if not is_offset(values):
                text = _("Level %s: the offset must be a whole number, 0 or greater.") % name
                yield Problem(text, lines.of(name))
        elif not isinstance(values, dict):
            yield Problem(_("%s must be an object.") % name, lines.of(name))
        elif file is ConfigFile.OFFSETS:
            yield from problems_in_offsets(name, values, lines)
        else:
            yield from problems_in_entry(file, name, values, lines)


def problems_in_entry(
    file: ConfigFile, name: str, values: dict[str, Any], lines: Lines
) -> Iterator[Problem]:
    name_key = NAME_KEYS.get(file, "")
    own_name = values.get(name_key, name)
    if own_name != name:
        text = _("%(name)s has a different name, %(own)s, in %(key)s.")
        yield Problem(text % {"name": name, "own": own_name, "key": name_key}, lines.of(name))
    for key in KEYS[file]:
        if key.name not in values:
            if key.default is NEEDED:
                text = _("%(name)s is missing %(key)s.") % {"name": name, "key": key.name}
                yield Problem(text, lines.of(name))
            continue
        wrong = key.problem(values[key.name])
        if wrong is not None:
            yield Problem(f"{name}: {wrong}", lines.of(name, key.name))


def problems_in_offsets(name: str, queues: dict[str, Any], lines: Lines) -> Iterator[Problem]:
    for queue, offset in queues.items():
        if not queue.isdecimal() or int(queue) > QUEUE_ID_MAX:
            yield Problem(
                _("%(name)s: “%(queue)s” isn't a queue number.") % {"name": name, "queue": queue},
                lines.of(name),
            )
        elif not is_offset(offset):
            text = _(
                "%(name)s: the offset of queue %(queue)s must be a whole number, 0 or greater."
            )
            yield Problem(text % {"name": name, "queue": queue}, lines.of(name))


def is_offset(value: Any) -> bool:
    """Return whether a value is an offset, as a number or a string."""
    if isinstance(value, bool) or not isinstance(value, int | str):
        return False
    text = str(value)
    is_number = text.isascii() and text.isdecimal() and len(text) <= OFFSET_DIGITS
    return is_number and int(text) <= INT64_MAX


def unknown_keys(file: ConfigFile, text: str) -> list[str]:
    """Return the keys of a valid text that no request can set, in order."""
    if file not in KEYS:
        return []
    known = {key.name for key in KEYS[file]} | BROKER_OWNED.get(file, set())
    if file in NAME_KEYS:
        known.add(NAME_KEYS[file])
    table = parse(text)[file.table]
    if file is ConfigFile.FILTERS:
        table = filters_in(table)
    return sorted({key for values in table.values() for key in values if key not in known})
