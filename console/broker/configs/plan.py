"""The effect of a change on a configuration, by key and broker, shown before it is applied."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from django.core import signing
from django.utils.translation import gettext as _

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from django.forms import Field

Values: TypeAlias = dict[str, Any]
State: TypeAlias = dict[str, Values | None]
"""A configuration's values by broker; None for a broker that doesn't have it."""

# Each kind of plan has its own salt, so that pages accept only plans of their kind.
PLAN_SALT = "console.configs.plan."
SEEN_SALT = "console.configs.seen."


@dataclass(frozen=True, slots=True)
class Line:
    """A value as shown to people; None if it is missing."""

    label: str
    seen: str | None
    now: str | None
    wanted: str | None

    @property
    def is_overtaken(self) -> bool:
        return self.seen != self.now


@dataclass(frozen=True, slots=True)
class Part:
    """Brokers with the same changes, and the changes."""

    brokers: tuple[str, ...]
    seen: Values | None
    now: Values | None
    wanted: Values | None

    def lines(self, fields: Mapping[str, Field]) -> Iterator[Line]:
        """Yield the differences; `fields` provide labels for values and choices."""
        seen, now, wanted = self.seen or {}, self.now or {}, self.wanted or {}
        for key in {**now, **wanted, **seen}:
            texts = [text_of(fields.get(key), each.get(key)) for each in (seen, now, wanted)]
            if len(set(texts)) > 1:
                field = fields.get(key)
                label = str(field.label) if field is not None and field.label else key
                yield Line(label, *texts)


@dataclass(frozen=True, slots=True)
class Plan:
    """A pending change: the state that the user saw, the current state, and the wanted one.

    `kind` is the audit log's word for the subject. `undoes` is the audit log entry that the plan
    undoes.
    """

    name: str
    seen: State
    now: State
    wanted: State
    undoes: int | None = None
    _: KW_ONLY
    kind: str

    @property
    def verb(self) -> str:
        """The audit log's word for the change."""
        if all(values is None for values in self.wanted.values()):
            return "delete"
        is_new = all(self.now.get(broker) is None for broker in self.wanted)
        return "create" if is_new else "update"

    @property
    def is_idle(self) -> bool:
        return self.now == self.wanted

    @property
    def is_overtaken(self) -> bool:
        """Return whether the state changed since it was seen, other than to the wanted values."""
        return self.seen != self.now and not self.is_idle

    @property
    def parts(self) -> list[Part]:
        """The brokers, grouped by identical changes."""
        found: list[Part] = []
        for broker, wanted in self.wanted.items():
            what = (self.seen.get(broker), self.now.get(broker), wanted)
            for at, part in enumerate(found):
                if (part.seen, part.now, part.wanted) == what:
                    found[at] = Part((*part.brokers, broker), *what)
                    break
            else:
                found.append(Part((broker,), *what))
        return found

    def sealed(self) -> str:
        """Return the plan signed, so that the browser can't alter it."""
        data = {"name": self.name, "seen": self.now, "wanted": self.wanted, "undoes": self.undoes}
        return signing.dumps(data, salt=PLAN_SALT + self.kind, compress=True)


def text_of(field: Field | None, value: object) -> str | None:
    if value is None:
        return None
    if isinstance(value, bool):
        return _("yes") if value else _("no")
    choices = dict(getattr(field, "choices", ()))
    return str(choices.get(value, value))


def unsealed(token: str, kind: str) -> dict[str, Any]:
    """Return the fields of a signed plan of some kind.

    Raises:
        signing.BadSignature: the signature is invalid, or the plan is of another kind.
    """
    plan: dict[str, Any] = signing.loads(token, salt=PLAN_SALT + kind)
    return plan


def sealed_state(state: State, kind: str) -> str:
    """Return the state that a form was opened on, signed, for a hidden field."""
    return signing.dumps(state, salt=SEEN_SALT + kind, compress=True)


def unsealed_state(token: str, kind: str) -> State:
    """Return the state that a form was opened on.

    Raises:
        signing.BadSignature: the signature is invalid, or the state is of another kind.
    """
    state: State = signing.loads(token, salt=SEEN_SALT + kind)
    return state
