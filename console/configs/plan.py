"""What a change would do to a configuration, key by key on each broker; shown before it is done."""

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
"""A configuration's values by broker; None on a broker that does not have it."""

# Each kind of plan has a salt of its own, so that no page takes the plan of another one.
PLAN_SALT = "console.configs.plan."
SEEN_SALT = "console.configs.seen."


@dataclass(frozen=True, slots=True)
class Line:
    """One value, as a person reads it; None where it is missing."""

    label: str
    seen: str | None
    now: str | None
    wanted: str | None

    @property
    def is_overtaken(self) -> bool:
        return self.seen != self.now


@dataclass(frozen=True, slots=True)
class Part:
    """The brokers on which the same happens, and what that is."""

    brokers: tuple[str, ...]
    seen: Values | None
    now: Values | None
    wanted: Values | None

    def lines(self, fields: Mapping[str, Field]) -> Iterator[Line]:
        """Yield what differs; `fields` know the names of values for people, and of choices."""
        seen, now, wanted = self.seen or {}, self.now or {}, self.wanted or {}
        for key in {**now, **wanted, **seen}:
            texts = [text_of(fields.get(key), each.get(key)) for each in (seen, now, wanted)]
            if len(set(texts)) > 1:
                field = fields.get(key)
                label = str(field.label) if field is not None and field.label else key
                yield Line(label, *texts)


@dataclass(frozen=True, slots=True)
class Plan:
    """A change that waits to be applied: what a person looked at, what is there, what is wanted.

    `kind` is the audit's word for what the plan is about. `undoes` is the audit's entry that the
    plan takes back.
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
        """The audit's word for it."""
        if all(values is None for values in self.wanted.values()):
            return "delete"
        is_new = all(self.now.get(broker) is None for broker in self.wanted)
        return "create" if is_new else "update"

    @property
    def is_idle(self) -> bool:
        return self.now == self.wanted

    @property
    def is_overtaken(self) -> bool:
        """Whether somebody changed it since it was looked at, in a way that is not wanted now."""
        return self.seen != self.now and not self.is_idle

    @property
    def parts(self) -> list[Part]:
        """The brokers in groups on each of which the same happens."""
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
        """Return the plan as it travels through the browser, which cannot change it."""
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
    """Return the fields of a plan of a kind that was applied.

    Raises:
        signing.BadSignature: this console has not made it, or made it for something else.
    """
    plan: dict[str, Any] = signing.loads(token, salt=PLAN_SALT + kind)
    return plan


def sealed_state(state: State, kind: str) -> str:
    """Return what a form was opened on, as a text that the form carries."""
    return signing.dumps(state, salt=SEEN_SALT + kind, compress=True)


def unsealed_state(token: str, kind: str) -> State:
    """Return what a form was opened on.

    Raises:
        signing.BadSignature: this console has not made it, or made it for something else.
    """
    state: State = signing.loads(token, salt=SEEN_SALT + kind)
    return state
