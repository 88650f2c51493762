"""A file as entries by name, read from a broker or from a text that a person has written."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from django.utils.translation import gettext as _

from console.files.schema import (
    AT,
    GROUP_FILTERS,
    KEPT_BY_BROKERS,
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
"""The entries of a file; offsets are texts, since JSON in browsers has no numbers of 64 bits."""

PROBLEMS_MAX = 50
QUEUE_ID_MAX = 65_535
OFFSET_DIGITS = len(str(INT64_MAX))
_AT_BYTE = re.compile(r"\(byte (\d+)\)")


@dataclass(frozen=True, slots=True)
class Problem:
    """Something wrong with a text, at a line of it where one is known."""

    text: str
    line: int | None = None


class FileProblemsError(ValueError):
    """A text is no such file; `problems` says why, line by line."""

    def __init__(self, problems: list[Problem]) -> None:
        super().__init__(problems[0].text)
        self.problems = tuple(problems[:PROBLEMS_MAX])


def entries_in(file: ConfigFile, document: Mapping[str, Any]) -> Entries:
    """Return the entries of a document that a broker answered."""
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
    """Return a document that has these entries, without a version of its data."""
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
    """Return the entries of a text that a person has written.

    Raises:
        FileProblemsError: it is no such file.
    """
    try:
        document = parse(text)
    except ValueError as error:
        raise FileProblemsError([syntax_problem(text, error)]) from error
    table = document.get(file.table) if isinstance(document, dict) else None
    if not isinstance(table, dict):
        raise FileProblemsError(
            [Problem(_("A %(file)s has an object %(table)s.") % words(file), line=1)]
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
    """Return where a text stops being JSON."""
    at = _AT_BYTE.search(str(error))
    line = text.encode()[: int(at[1])].count(b"\n") + 1 if at else None
    said = _AT_BYTE.sub("", str(error)).removeprefix("JSON is malformed: ").strip()
    return Problem(_("This is not JSON: %(reason)s.") % {"reason": said}, line)


class Lines:
    """Finds the line on which a key of an entry stands: in quotes in JSON, bare in YAML."""

    def __init__(self, text: str, *, is_quoted: bool = True) -> None:
        self._lines = text.split("\n")
        self._pattern = '"{}"' if is_quoted else "{}:"

    def of(self, entry: str, key: str = "") -> int | None:
        start = self._first(entry, 0)
        if start is None and AT in entry:
            # A filter stands below its topic.
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
            # Numbers are keys without quotes, too.
            number = re.compile(rf'(?<!\w)"?{word}"?\s*:')
            return next((at for at in rest if number.search(self._lines[at])), None)
        wanted = self._pattern.format(word)
        return next((at for at in rest if wanted in self._lines[at]), None)


def problems_of_shape(table: Mapping[str, Any], lines: Lines) -> Iterator[Problem]:
    """Yield what keeps a table of filters from being read."""
    for topic, filters in table.items():
        if not isinstance(filters, dict) or not isinstance(filters.get(GROUP_FILTERS), dict):
            said = _("%(topic)s has an object %(key)s of its groups.")
            yield Problem(said % {"topic": topic, "key": GROUP_FILTERS}, lines.of(topic))


def problems_in(file: ConfigFile, table: Mapping[str, Any], lines: Lines) -> Iterator[Problem]:
    for name, values in table.items():
        wrong = problem_of_name(file, name)
        # What the broker keeps to itself has names of its own making.
        if wrong is not None and not is_brokers_own(file, name):
            yield Problem(f"{name}: {wrong}", lines.of(name))
        elif file is ConfigFile.DELAYS:
            if not is_offset(values):
                said = _("Level %s: the offset is a whole number from 0 on.") % name
                yield Problem(said, lines.of(name))
        elif not isinstance(values, dict):
            yield Problem(_("%s is an object.") % name, lines.of(name))
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
        said = _("%(name)s calls itself %(own)s in %(key)s.")
        yield Problem(said % {"name": name, "own": own_name, "key": name_key}, lines.of(name))
    for key in KEYS[file]:
        if key.name not in values:
            if key.default is NEEDED:
                said = _("%(name)s lacks %(key)s.") % {"name": name, "key": key.name}
                yield Problem(said, lines.of(name))
            continue
        wrong = key.problem(values[key.name])
        if wrong is not None:
            yield Problem(f"{name}: {wrong}", lines.of(name, key.name))


def problems_in_offsets(name: str, queues: dict[str, Any], lines: Lines) -> Iterator[Problem]:
    for queue, offset in queues.items():
        if not queue.isdecimal() or int(queue) > QUEUE_ID_MAX:
            yield Problem(
                _("%(name)s: %(queue)s is no queue.") % {"name": name, "queue": queue},
                lines.of(name),
            )
        elif not is_offset(offset):
            said = _("%(name)s: the offset of queue %(queue)s is a whole number from 0 on.")
            yield Problem(said % {"name": name, "queue": queue}, lines.of(name))


def is_offset(value: Any) -> bool:
    """Whether a value is a place in a queue, as a number or as its text."""
    if isinstance(value, bool) or not isinstance(value, int | str):
        return False
    text = str(value)
    is_number = text.isascii() and text.isdecimal() and len(text) <= OFFSET_DIGITS
    return is_number and int(text) <= INT64_MAX


def unknown_keys(file: ConfigFile, text: str) -> list[str]:
    """Return the keys of a valid text's entries that no request carries, in order."""
    if file not in KEYS:
        return []
    known = {key.name for key in KEYS[file]} | KEPT_BY_BROKERS.get(file, set())
    if file in NAME_KEYS:
        known.add(NAME_KEYS[file])
    table = parse(text)[file.table]
    if file is ConfigFile.FILTERS:
        table = filters_in(table)
    return sorted({key for values in table.values() for key in values if key not in known})
