"""The schema of each file: keys of entries with types, limits and defaults.

An entry is the unit of one request: a topic, a group, or a group's offsets in a topic. The limits
are the broker's own, which are wider than those of the forms.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from django.utils.translation import gettext as _, gettext_lazy

from broker_core.message import names
from broker_core.message.subscription import EXPRESSION_TYPE_SQL92
from broker_core.message.topic_config import MULTI_TAG, PERM_MAX, QUEUE_NUMS_MAX, SINGLE_TAG
from console.gateway.answers import GroupConfig, TopicConfig, TopicKind
from console.gateway.files import INT64_MAX, ConfigFile
from console.gateway.kinds import is_system_group, topic_kind

if TYPE_CHECKING:
    from django.utils.functional import Promise

INT32_MIN, INT32_MAX = -(1 << 31), (1 << 31) - 1
RETRY_QUEUE_NUMS_MAX = 1_024
LEVEL_DIGITS = 4
RETRY_TIMES_MAX = 1_000_000
NEEDED = object()
"""The default of a required key."""
AT = "@"


@dataclass(frozen=True, slots=True)
class Key:
    """A key of an entry; `attribute` is the matching field of the request's dataclass."""

    name: str
    attribute: str
    kind: type
    default: Any
    help: Promise
    low: int = 0
    high: int = 0
    choices: tuple[str, ...] = ()

    def problem(self, value: Any) -> str | None:
        """Return a sentence that explains why a value is invalid, or None."""
        if self.kind is str and not self.choices:
            is_text = isinstance(value, str) and value.strip()
            return None if is_text else _("%s must be text.") % self.name
        if self.kind is bool:
            return None if isinstance(value, bool) else _("%s must be true or false.") % self.name
        if self.choices:
            choices = ", ".join(self.choices)
            wrong = _("%(key)s must be one of %(choices)s.") % {
                "key": self.name,
                "choices": choices,
            }
            return None if value in self.choices else wrong
        if isinstance(value, bool) or not isinstance(value, int):
            return _("%s must be a whole number.") % self.name
        if not self.low <= value <= self.high:
            bounds = {"key": self.name, "low": self.low, "high": self.high}
            return _("%(key)s must be between %(low)d and %(high)d.") % bounds
        return None


TOPIC_KEYS = (
    Key(
        "order",
        "order",
        bool,
        False,
        gettext_lazy("A hint for clients. Ordering itself comes from sending to one queue."),
    ),
    Key(
        "perm",
        "perm",
        int,
        6,
        gettext_lazy("4 read, 2 write, 1 inherit. Add them up: 6 is read and write."),
        high=PERM_MAX,
    ),
    Key(
        "readQueueNums",
        "read_queue_nums",
        int,
        NEEDED,
        gettext_lazy("The number of queues that consumers read from."),
        low=1,
        high=QUEUE_NUMS_MAX,
    ),
    Key(
        "topicFilterType",
        "topic_filter_type",
        str,
        SINGLE_TAG,
        gettext_lazy("Whether a message can have several tags."),
        choices=(SINGLE_TAG, MULTI_TAG),
    ),
    Key(
        "topicSysFlag",
        "topic_sys_flag",
        int,
        0,
        gettext_lazy("1 topic of a unit, 2 read by units. Add them up."),
        high=3,
    ),
    Key(
        "writeQueueNums",
        "write_queue_nums",
        int,
        NEEDED,
        gettext_lazy("The number of queues that producers write to."),
        low=1,
        high=QUEUE_NUMS_MAX,
    ),
)
GROUP_KEYS = (
    Key(
        "brokerId",
        "broker_id",
        int,
        0,
        gettext_lazy("Consumers read from the broker with this ID; 0 is the master."),
        low=INT32_MIN,
        high=INT32_MAX,
    ),
    Key(
        "consumeBroadcastEnable",
        "consume_broadcast_enable",
        bool,
        True,
        gettext_lazy("Whether each consumer can receive every message."),
    ),
    Key(
        "consumeEnable",
        "consume_enable",
        bool,
        True,
        gettext_lazy("While this is false, consumers stay connected but receive no messages."),
    ),
    Key(
        "consumeFromMinEnable",
        "consume_from_min_enable",
        bool,
        True,
        gettext_lazy("Whether the group can start at the oldest message."),
    ),
    Key(
        "notifyConsumerIdsChangedEnable",
        "notify_consumer_ids_changed_enable",
        bool,
        True,
        gettext_lazy(
            "Whether consumers are notified immediately when another consumer joins or leaves."
        ),
    ),
    Key(
        "retryMaxTimes",
        "retry_max_times",
        int,
        16,
        gettext_lazy("After the last retry, the message goes to the dead-letter topic."),
        low=-1,
        high=RETRY_TIMES_MAX,
    ),
    Key(
        "retryQueueNums",
        "retry_queue_nums",
        int,
        1,
        gettext_lazy("Queues of the group's retry topic."),
        high=RETRY_QUEUE_NUMS_MAX,
    ),
    Key(
        "whichBrokerWhenConsumeSlowly",
        "which_broker_when_consume_slowly",
        int,
        1,
        gettext_lazy("The ID of the broker that consumers read from when they're far behind."),
        low=INT32_MIN,
        high=INT32_MAX,
    ),
)
FILTER_KEYS = (
    Key(
        "expression",
        "expression",
        str,
        NEEDED,
        gettext_lazy("Which messages of the topic the group receives, by their properties."),
    ),
    Key(
        "expressionType",
        "expression_type",
        str,
        EXPRESSION_TYPE_SQL92,
        gettext_lazy("The language of the expression."),
        choices=(EXPRESSION_TYPE_SQL92,),
    ),
)
KEYS: dict[ConfigFile, tuple[Key, ...]] = {
    ConfigFile.TOPICS: TOPIC_KEYS,
    ConfigFile.GROUPS: GROUP_KEYS,
    ConfigFile.FILTERS: FILTER_KEYS,
}
BROKER_OWNED = {
    ConfigFile.TOPICS: frozenset({"attributes"}),
    ConfigFile.GROUPS: frozenset({"consumeMessageOrderly"}),
    ConfigFile.FILTERS: frozenset(
        {
            "bloomFilterData",
            "bornTime",
            "clientVersion",
            "consumerGroup",
            "dead",
            "deadTime",
            "topic",
        }
    ),
}
"""Keys that brokers set themselves: they are allowed in a text and have no effect."""
# The key that repeats the name of the entry.
NAME_KEYS = {ConfigFile.TOPICS: "topicName", ConfigFile.GROUPS: "groupName"}
PAIRS = (ConfigFile.OFFSETS, ConfigFile.FILTERS)
"""Files whose entries are named by topic and group."""
GROUP_FILTERS = "groupFilterData"


def problem_of_name(file: ConfigFile, name: str) -> str | None:
    """Return a sentence that explains why an entry's name is invalid, or None."""
    if file is ConfigFile.DELAYS:
        is_level = name.isascii() and name.isdigit() and len(name) <= LEVEL_DIGITS and int(name)
        return None if is_level else _("A delay level is a number, 1 or greater.")
    if file in PAIRS:
        topic, at, group = name.partition(AT)
        if not at:
            return _("The entry is named by topic and group: topic@group.")
        return names.check_topic(topic) or names.check_group(group)
    check = names.check_topic if file is ConfigFile.TOPICS else names.check_group
    return check(name)


def is_brokers_own(file: ConfigFile, name: str, own: frozenset[str] = frozenset()) -> bool:
    """Return whether an entry belongs to the broker itself, so that no request may change it.

    `own` are the names of the cluster and the broker.
    """
    if file is ConfigFile.TOPICS:
        return topic_kind(name, own) is TopicKind.SYSTEM
    if file is ConfigFile.DELAYS:
        return False
    return is_system_group(name.partition(AT)[2] if file in PAIRS else name)


def is_made_by_brokers(file: ConfigFile, name: str, own: frozenset[str] = frozenset()) -> bool:
    """Return whether brokers create an entry themselves; exports leave it out."""
    if file is ConfigFile.TOPICS:
        return topic_kind(name, own) is not TopicKind.NORMAL
    return is_brokers_own(file, name, own)


def topic_config(name: str, values: dict[str, Any]) -> TopicConfig:
    return TopicConfig(name, **attributes(TOPIC_KEYS, values))


def group_config(name: str, values: dict[str, Any]) -> GroupConfig:
    return GroupConfig(name, **attributes(GROUP_KEYS, values))


def attributes(keys: tuple[Key, ...], values: dict[str, Any]) -> dict[str, Any]:
    return {key.attribute: values.get(key.name, key.default) for key in keys}


def json_schema(file: ConfigFile) -> dict[str, Any]:
    """Return the file's JSON Schema (2020-12) for editors, including the console's."""
    number = {"type": "integer", "minimum": 0, "maximum": INT64_MAX}
    if file is ConfigFile.OFFSETS:
        entry: dict[str, Any] = {
            "type": "object",
            "patternProperties": {"^[0-9]+$": number},
            "additionalProperties": False,
        }
    elif file is ConfigFile.DELAYS:
        entry = number
    elif file is ConfigFile.FILTERS:
        of_group = {"type": "object", "additionalProperties": schema_of_entry(file)}
        entry = {
            "type": "object",
            "properties": {"topic": {"type": "string"}, GROUP_FILTERS: of_group},
            "required": [GROUP_FILTERS],
        }
    else:
        entry = schema_of_entry(file)
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": str(file),
        "type": "object",
        "properties": {file.table: {"type": "object", "additionalProperties": entry}},
        "required": [file.table],
    }


def schema_of_entry(file: ConfigFile) -> dict[str, Any]:
    name_key = NAME_KEYS.get(file)
    named = {} if name_key is None else {name_key: {"type": "string"}}
    return {
        "type": "object",
        "properties": {**named, **{key.name: schema_of(key) for key in KEYS[file]}},
        "required": [key.name for key in KEYS[file] if key.default is NEEDED],
    }


def schema_of(key: Key) -> dict[str, Any]:
    found: dict[str, Any] = {"description": str(key.help)}
    if key.kind is bool:
        found["type"] = "boolean"
    elif key.choices:
        found["enum"] = list(key.choices)
    elif key.kind is str:
        found |= {"type": "string", "minLength": 1}
    else:
        found |= {"type": "integer", "minimum": key.low, "maximum": key.high}
    if key.default is not NEEDED:
        found["default"] = key.default
    return found
