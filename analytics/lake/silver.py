"""Silver: updates the tables of a topic's bodies to each version of bronze exactly once.

Like gold, each table stores the version of bronze that it has read in its own log. The rows of new
files are read and added. A day whose rows were removed or rewritten is read again, so silver loses
a message or its content when bronze does.

The functions acquire UPKEEP, or the caller holds it.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

import pyarrow as pa
from deltalake.exceptions import DeltaError

from analytics.errors import LakeError
from analytics.lake.changes import Difference, changes_since, days_of, files_by_day
from analytics.lake.parsing import ParseTask
from analytics.lake.place import UPKEEP
from analytics.lake.silver_tables import SilverTopic, silver_in, stored_columns
from analytics.lake.tables import MESSAGES
from analytics.lake.writer import Query

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import date

    from deltalake import DeltaTable

    from analytics.lake.bodies import BodyRules
    from analytics.lake.place import LakePlace
    from analytics.lake.writer import Writer

_COUNTED = pa.schema([("day", pa.date32()), ("topic", pa.string()), ("messages", pa.int64())])


def declare(place: LakePlace, rules: BodyRules) -> None:
    """Create the tables that rules declare. Tables whose columns changed are recreated.

    Raises:
        LakeError: the lake isn't usable.
    """
    for topic, rule in rules.by_topic.items():
        if rule.columns is None or stored_columns(place, topic) == rule.columns:
            continue
        declared = SilverTopic(topic, rule.columns)
        if len({name.lower() for name in declared.names}) < len(declared.names):
            raise LakeError(f"bodies.{topic}: two fields have the same column; rename one.")
        with place.locked(UPKEEP), place.locked():
            try:
                for table in reversed(declared.tables):
                    if table.exists(place):
                        # An earlier declaration may have left its version number.
                        opened = table.existing(place)
                        table.commit(place, opened, [], states={declared.state: 0})
                        table.create(place, "overwrite")
                    table.open(place)
            except (DeltaError, OSError) as error:
                raise LakeError(f"The tables of {topic} can't be made: {error}.") from error


def is_behind(place: LakePlace) -> bool:
    """Return whether bronze has a version that silver hasn't read."""
    topics = silver_in(place)
    if not topics or not MESSAGES.exists(place):
        return False
    version = MESSAGES.existing(place).version()
    return any(
        not table.exists(place) or table.existing(place).transaction_version(topic.state) != version
        for topic in topics
        for table in topic.tables
    )


def catch_up(
    place: LakePlace,
    writer: Writer,
    *,
    recount: bool = False,
    observer: Callable[[str], None] | None = None,
) -> bool:
    """Read new messages of bronze into the tables of each topic; return whether there were any.

    Args:
        recount: read everything that bronze has.
        observer: called with the name of each step once it is done.

    Raises:
        LakeBusyError: another process wrote to a table meanwhile.
        LakeError: the lake isn't usable.
    """
    did = False
    with place.locked(UPKEEP):
        topics = silver_in(place)
        if not topics or not MESSAGES.exists(place):
            return False
        bronze = MESSAGES.existing(place)
        tell = observer or (lambda _: None)
        for topic in topics:
            # A kill between the commits of both tables leaves them at different versions.
            behind: dict[int | None, list[str]] = defaultdict(list)
            for table in topic.tables:
                with place.locked():
                    known = table.open(place).transaction_version(topic.state)
                if recount or known != bronze.version():
                    behind[None if recount else known].append(table.name)
            for known, names in behind.items():
                _catch_up(place, writer, topic, frozenset(names), known, bronze, tell)
                did = True
    return did


def _catch_up(
    place: LakePlace,
    writer: Writer,
    topic: SilverTopic,
    names: frozenset[str],
    known: int | None,
    bronze: DeltaTable,
    tell: Callable[[str], None],
) -> None:
    changes = changes_since(place, known, bronze)
    days = days_of(bronze)
    files = [
        *changes.added,
        *(file for day in sorted(changes.recounted) for file in days.get(day, [])),
    ]
    written = writer.parsed(ParseTask(place, topic, names), files) if files else {}
    tell("silver written")
    for table in topic.tables:
        if table.name not in names:
            continue
        with place.locked():
            opened = table.existing(place)
            by_day = files_by_day(opened)
            removed = [
                file.path
                for day, there in by_day.items()
                if known is None or day in changes.recounted
                for file in there
            ]
            table.commit(
                place,
                opened,
                written.get(table.name, []),
                removed=removed,
                states={topic.state: bronze.version()},
                engine=writer.name,
            )
            tell("silver committed")
            table.checkpoint(place)


def differences(place: LakePlace, writer: Writer) -> list[Difference]:
    """Compare the number of messages in silver with bronze, for each topic and day.

    A message whose body bronze stores is in one of its topic's two tables.
    """
    found = []
    for topic in silver_in(place):
        in_silver: dict[date, int] = defaultdict(int)
        for table in topic.tables:
            for day, stored in files_by_day(table.existing(place)).items():
                in_silver[day] += sum(file.rows for file in stored)
        version = topic.rejected.existing(place).transaction_version(topic.state)
        bronze = MESSAGES.existing(place)
        bronze.load_as_version(bronze.version() if version is None else version)
        for day, files in sorted(days_of(bronze).items()):
            query = Query(
                "SELECT day, topic, count(*) AS messages FROM given "
                "WHERE body IS NOT NULL GROUP BY day, topic",
                MESSAGES,
                files,
                ("day", "topic", "body"),
            )
            counted = writer.table(place, query, _COUNTED).to_pylist()
            of_topic = sum(row["messages"] for row in counted if row["topic"] == topic.topic)
            if in_silver[day] != of_topic:
                name = topic.accepted.name
                found.append(Difference(name, day, in_silver[day], of_topic))
    return found
