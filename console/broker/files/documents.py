"""Configuration documents for import and export: YAML for Git, or a broker's JSON files.

YAML describes topics, groups and filters, on all masters or on some::

    trebuchet: 1
    topics:
      orders:
        readQueueNums: 8
        writeQueueNums: 8
        brokers: [broker-a]
        at:
          broker-a: {perm: 4}
    groups:
      billing: {retryMaxTimes: 16}
    filters:
      orders@billing: {expression: price > 10}
    delays:
      broker-a: {3: 17}

Entries that the document doesn't name stay as they are, unless `--whole` is given. Entries that
brokers create themselves (retry and dead-letter topics, their own topics and groups) are never
exported or imported. Delay offsets are listed by broker and level and exported only on request,
because they are positions of a running broker.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import yaml
from django.utils.translation import gettext as _

from console.broker.files.changing import own_names, plan_of, read
from console.broker.files.delays import OFFSET
from console.broker.files.entries import (
    FileProblemsError,
    Lines,
    Problem,
    entries_in,
    entries_of_text,
    problems_in,
)
from console.broker.files.schema import KEYS, NEEDED, is_made_by_brokers
from console.gateway.access import gateway
from console.gateway.files import ConfigFile, parse

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from console.broker.configs.plan import Plan, State
    from console.broker.files.entries import Entries

FORMAT, VERSION = "trebuchet", 1
SECTIONS = {
    "topics": ConfigFile.TOPICS,
    "groups": ConfigFile.GROUPS,
    "filters": ConfigFile.FILTERS,
}
"""Files that should be the same on all masters, unless the document says otherwise."""
DELAYS_SECTION = "delays"
POSITIONS = (ConfigFile.OFFSETS, ConfigFile.DELAYS)
"""Files with positions, which a document never covers completely."""
BROKERS, AT_BROKERS = "brokers", "at"
CHARACTERS_MAX = 2_000_000


@dataclass(frozen=True, slots=True)
class WantedEntry:
    """The wanted state of an entry; `brokers` None is every master, `at` has values per broker."""

    values: dict[str, Any]
    brokers: tuple[str, ...] | None = None
    at: Mapping[str, dict[str, Any]] = field(default_factory=dict)

    def on(self, broker_name: str) -> dict[str, Any] | None:
        """Return the values on a broker, or None if the entry isn't for that broker."""
        if self.brokers is not None and broker_name not in self.brokers:
            return None
        return {**self.values, **self.at.get(broker_name, {})}


@dataclass(frozen=True, slots=True)
class Document:
    """The wanted entries by file."""

    wanted: Mapping[ConfigFile, Mapping[str, WantedEntry]]

    @property
    def named_brokers(self) -> set[str]:
        """The brokers that entries name."""
        return {
            broker
            for entries in self.wanted.values()
            for each in entries.values()
            for broker in (*(each.brokers or ()), *each.at)
        }


class NoAliases(yaml.SafeLoader):
    """YAML without aliases, because a few of them can expand to a text of any size."""

    def compose_node(self, parent: Any, index: Any) -> Any:
        if self.check_event(yaml.AliasEvent):
            raise yaml.YAMLError(_("aliases (*name) aren't supported"))
        return super().compose_node(parent, index)


def read_document(text: str) -> Document:
    """Return the document in a text: this console's YAML, or one or more of a broker's JSON tables.

    Raises:
        FileProblemsError: the text is neither.
    """
    if len(text) > CHARACTERS_MAX:
        sentence = _("The file has more than %d characters.") % CHARACTERS_MAX
        raise FileProblemsError([Problem(sentence)])
    if text.lstrip().startswith("{"):
        return of_json(text)
    try:
        found = NoAliases(text).get_single_data()
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        mark = getattr(error, "problem_mark", None)
        reason = getattr(error, "problem", None) or str(error) or type(error).__name__
        line = mark.line + 1 if mark is not None else None
        raise FileProblemsError(
            [Problem(_("The file isn't valid YAML: %(reason)s.") % {"reason": reason}, line)]
        ) from error
    return of_yaml(found, Lines(text, is_quoted=False))


def of_json(text: str) -> Document:
    try:
        document = parse(text)
    except ValueError:
        document = {}
    files = [file for file in ConfigFile if file.table in document]
    if ConfigFile.OFFSETS in files:
        # The offsets of groups and of delay levels have a table of the same name.
        offsets = document[ConfigFile.OFFSETS.table]
        is_of_levels = isinstance(offsets, dict) and all(name.isdecimal() for name in offsets)
        files.remove(ConfigFile.OFFSETS if offsets and is_of_levels else ConfigFile.DELAYS)
    if not files:
        # This reports where the JSON is invalid, or which table is missing.
        entries_of_text(ConfigFile.TOPICS, text)
    return Document(
        {
            file: {
                name: WantedEntry(values)
                for name, values in entries_of_text(file, text).items()
                if not is_made_by_brokers(file, name)
            }
            for file in files
        }
    )


def of_yaml(found: Any, lines: Lines) -> Document:
    if not isinstance(found, dict) or found.get(FORMAT) != VERSION:
        text = _("The file must start with “%(key)s: %(version)d” or be a broker's JSON file.")
        values = {"key": FORMAT, "version": VERSION}
        raise FileProblemsError([Problem(text % values, 1)])
    known = {FORMAT, DELAYS_SECTION, *SECTIONS}
    unknown = sorted(str(key) for key in found if key not in known)
    problems = [Problem(_("Unknown section %s.") % name, lines.of(name)) for name in unknown]
    wanted: dict[ConfigFile, dict[str, WantedEntry]] = {}
    for section, file in SECTIONS.items():
        if section not in found:
            continue
        entries = found[section] or {}
        if not isinstance(entries, dict):
            problems.append(Problem(_("%s must map names to values.") % section, lines.of(section)))
            continue
        wanted[file] = {}
        for name, values in entries.items():
            wrong, entry = of_entry(file, name, values, lines)
            problems += wrong
            if entry is not None:
                wanted[file][name] = entry
    if DELAYS_SECTION in found:
        wrong, wanted[ConfigFile.DELAYS] = of_delays(found[DELAYS_SECTION] or {}, lines)
        problems += wrong
    if problems:
        raise FileProblemsError(problems)
    return Document(wanted)


def of_delays(found: Any, lines: Lines) -> tuple[list[Problem], dict[str, WantedEntry]]:
    """Return a section's delay offsets by broker and level, and its problems."""
    if not isinstance(found, dict):
        text = _("%s must map broker names to offsets by level.") % DELAYS_SECTION
        return [Problem(text, lines.of(DELAYS_SECTION))], {}
    problems: list[Problem] = []
    by_level: dict[str, dict[str, dict[str, Any]]] = {}
    for broker_name, levels in found.items():
        if not isinstance(broker_name, str) or not isinstance(levels, dict):
            text = _("%s must map broker names to offsets by level.") % DELAYS_SECTION
            problems.append(Problem(text, lines.of(str(broker_name))))
            continue
        table = {str(level): offset for level, offset in levels.items()}
        wrong = list(problems_in(ConfigFile.DELAYS, table, lines))
        problems += wrong
        if not wrong:
            for level, offset in table.items():
                at = by_level.setdefault(str(int(level)), {})
                at[broker_name] = {OFFSET: str(int(offset))}
    return problems, {level: WantedEntry({}, tuple(at), at) for level, at in by_level.items()}


def of_entry(
    file: ConfigFile, name: Any, values: Any, lines: Lines
) -> tuple[list[Problem], WantedEntry | None]:
    """Return an entry of YAML, or its problems."""
    if not isinstance(name, str):
        text = _("YAML doesn't read %s as text. Put the name in quotes.") % name
        return [Problem(text)], None
    if is_made_by_brokers(file, name):
        text = _("%s is created by the brokers themselves.") % name
        return [Problem(text, lines.of(name))], None
    if not isinstance(values or {}, dict):
        return [Problem(_("%s must be an object.") % name, lines.of(name))], None
    own = dict(values or {})
    brokers, at = own.pop(BROKERS, None), own.pop(AT_BROKERS, None) or {}
    problems = []
    if brokers is not None and not (
        isinstance(brokers, list) and brokers and all(isinstance(each, str) for each in brokers)
    ):
        text = _("%s: brokers must be a list of names.") % name
        problems.append(Problem(text, lines.of(name, BROKERS)))
    if not isinstance(at, dict) or not all(isinstance(each, dict) for each in at.values()):
        text = _("%s: at must map broker names to values.") % name
        return [*problems, Problem(text, lines.of(name, AT_BROKERS))], None
    for part in (own, *({**own, **each} for each in at.values())):
        problems += problems_in(file, {name: part}, lines)
        problems += [
            Problem(_("%(name)s has no %(key)s.") % {"name": name, "key": key}, lines.of(name, key))
            for key in part
            if key not in {each.name for each in KEYS[file]}
        ]
    if problems:
        return problems, None
    defaults = {key.name: key.default for key in KEYS[file] if key.default is not NEEDED}
    return [], WantedEntry({**defaults, **own}, None if brokers is None else tuple(brokers), {**at})


def plans_of(
    document: Document, broker_names: Sequence[str], *, is_whole: bool = False
) -> list[Plan]:
    """Return the plans that change brokers to match a document; asks the brokers.

    `is_whole` also deletes topics and groups that the document doesn't name.

    Raises:
        GatewayError: a broker didn't respond.
        FileProblemsError: the document names a broker that isn't in `broker_names`.
    """
    strangers = sorted(document.named_brokers - set(broker_names))
    if strangers and document.named_brokers.isdisjoint(broker_names):
        text = _("The file is for other brokers: %s.") % ", ".join(strangers)
        raise FileProblemsError([Problem(text)])
    plans = []
    for file, entries in document.wanted.items():
        for broker_name in broker_names:
            if not is_whole and all(entry.on(broker_name) is None for entry in entries.values()):
                continue
            now = read(broker_name, file)
            wanted = wanted_on(broker_name, file, entries, now, is_whole=is_whole)
            plans.append(plan_of(broker_name, file, now, now, wanted))
    return [plan for plan in plans if not plan.is_idle]


def wanted_on(
    broker_name: str,
    file: ConfigFile,
    entries: Mapping[str, WantedEntry],
    now: Entries,
    *,
    is_whole: bool,
) -> State:
    """Return the entries that have to change on a broker."""
    wanted: State = {}
    own = own_names(broker_name)
    for name, entry in entries.items():
        values = entry.on(broker_name)
        if values is None or is_made_by_brokers(file, name, own):
            continue
        if file is ConfigFile.OFFSETS:
            # A file of offsets names only the queues to move.
            values = {**now.get(name, {}), **values}
        if now.get(name) != values:
            wanted[name] = values
    if is_whole and file not in POSITIONS:
        for name in now:
            is_named = name in entries and entries[name].on(broker_name) is not None
            if not is_named and not is_made_by_brokers(file, name, own):
                wanted[name] = None
    return wanted


def entries_by_broker(file: ConfigFile, broker_names: Sequence[str]) -> dict[str, Entries]:
    """Return a file's entries on each broker that reports it; RocketMQ's own don't report filters.

    Raises:
        GatewayError: a broker didn't respond.
    """
    documents = gateway().files.read(file, broker_names)
    return {
        broker_name: entries_in(file, document)
        for broker_name, document in documents.items()
        if document is not None
    }


def yaml_of(broker_names: Sequence[str], *, with_delays: bool = False) -> str:
    """Return the brokers' configuration as YAML that `read_document` accepts.

    `with_delays` adds each broker's offset in each delay level.

    Raises:
        GatewayError: a broker didn't respond.
    """
    sections: dict[str, Any] = {FORMAT: VERSION}
    for section, file in SECTIONS.items():
        found = entries_by_broker(file, broker_names)
        entries = {
            name: yaml_entry(file, {each: found.get(each, {}).get(name) for each in broker_names})
            for name in names_in(file, found)
        }
        # Few clusters have filters, and importing an empty section as a whole would delete all.
        if entries or file is not ConfigFile.FILTERS:
            sections[section] = entries
    if with_delays:
        sections[DELAYS_SECTION] = {
            broker_name: {int(level): int(values[OFFSET]) for level, values in entries.items()}
            for broker_name, entries in entries_by_broker(ConfigFile.DELAYS, broker_names).items()
        }
    return yaml.safe_dump(sections, sort_keys=False, allow_unicode=True, default_flow_style=False)


def names_in(file: ConfigFile, found: Mapping[str, Entries]) -> list[str]:
    """Return the names of entries to export, without duplicates."""
    return sorted(
        {
            name
            for broker, entries in found.items()
            for own in [own_names(broker)]
            for name in entries
            if not is_made_by_brokers(file, name, own)
        }
    )


def yaml_entry(file: ConfigFile, values: Mapping[str, dict[str, Any] | None]) -> dict[str, Any]:
    """Return an entry for YAML: its most common values, and differences by broker."""
    there = {broker: each for broker, each in values.items() if each is not None}
    most = Counter(tuple(sorted(each.items())) for each in there.values()).most_common(1)[0][0]
    common = dict(most)
    kept = {
        key.name: common[key.name]
        for key in KEYS[file]
        if key.default is NEEDED or common[key.name] != key.default
    }
    if len(there) < len(values):
        kept[BROKERS] = sorted(there)
    differing = {
        broker: {key: value for key, value in each.items() if common[key] != value}
        for broker, each in there.items()
        if each != common
    }
    if differing:
        kept[AT_BROKERS] = differing
    return kept


@dataclass(frozen=True, slots=True)
class Drift:
    """An entry that differs between masters: for each key, its value on each master."""

    file: ConfigFile
    name: str
    missing: tuple[str, ...]
    rows: tuple[tuple[str, tuple[Any, ...]], ...]


def drift_of(file: ConfigFile, found: Mapping[str, Entries]) -> list[Drift]:
    """Return the entries that differ between brokers."""
    drifts = []
    for name in names_in(file, found):
        values = {broker: entries.get(name) for broker, entries in found.items()}
        there = [each for each in values.values() if each is not None]
        missing = tuple(broker for broker, each in values.items() if each is None)
        rows = tuple(
            (key.name, tuple(None if each is None else each[key.name] for each in values.values()))
            for key in KEYS[file]
            if len({each[key.name] for each in there}) > 1
        )
        if missing or rows:
            drifts.append(Drift(file, name, missing, rows))
    return drifts


def like(
    source: str, file: ConfigFile, found: Mapping[str, Entries], *, name: str = "", is_whole: bool
) -> list[Plan]:
    """Return the plans that make other brokers match one of them, in one entry or in all."""
    plans = []
    own = own_names(source)
    entries = {
        each: WantedEntry(values)
        for each, values in found[source].items()
        if not is_made_by_brokers(file, each, own) and name in ("", each)
    }
    for broker_name, now in found.items():
        if broker_name == source:
            continue
        wanted = wanted_on(broker_name, file, entries, narrowed(now, name), is_whole=is_whole)
        plans.append(plan_of(broker_name, file, now, now, wanted))
    return [plan for plan in plans if not plan.is_idle]


def narrowed(entries: Entries, name: str) -> Entries:
    return entries if not name else {each: entries[each] for each in entries if each == name}
