"""Compiled filter expressions.

An expression is a tree of closures over the properties' `get`. It has three values: True, False,
and None for unknown. A chain of AND or OR is one closure with a loop, so the depth equals the
nesting of the text.

Source: filter/expression/*.java (5.3.3).
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from broker_core.delivery.sql92.java_values import (
    EvaluationError,
    Number,
    NumberKind,
    compare,
    compare_as_doubles,
    negate,
    read_whole,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from broker_core.delivery.sql92.java_values import Value

Get = Callable[[str], str | None]
"""Return a property by name, or None if the message doesn't have it."""


class Expression:
    """A complete expression. Any thread; holds no state.

    Attributes:
        text: its source.
        comparisons: the number of comparisons, which determines the cost of an evaluation.
    """

    __slots__ = ("_evaluate", "comparisons", "text")

    def __init__(self, text: str, evaluate: Callable[[Get], Value], comparisons: int) -> None:
        self.text = text
        self.comparisons = comparisons
        self._evaluate = evaluate

    def matches(self, get: Get) -> bool:
        """Return whether the value is true; False if it is unknown or can't be evaluated."""
        try:
            return self._evaluate(get) is True
        except EvaluationError:
            return False

    def evaluate(self, get: Get) -> Value:
        """Return the expression's value.

        Raises:
            EvaluationError: a property isn't a number although it's compared with one.
        """
        return self._evaluate(get)


@dataclass(slots=True, frozen=True)
class Node:
    """A part of an expression, with the properties that RocketMQ's checks use."""

    evaluate: Callable[[Get], Value]
    depth: int
    """The depth of calls in an evaluation."""
    is_boolean: bool = False
    """Whether this is a BooleanExpression: a comparison, a logical expression, TRUE, FALSE or NULL.
    """
    is_constant: bool = False
    value: Value = None
    """The value of a constant."""
    property_name: str | None = None

    def __str__(self) -> str:
        if self.property_name is not None:
            return self.property_name
        if not self.is_constant:
            return "the expression"
        if isinstance(self.value, Number):
            return str(self.value.value)
        if isinstance(self.value, str):
            return "'" + self.value.replace("'", "''") + "'"
        return {None: "NULL", True: "TRUE", False: "FALSE"}[self.value]


def constant(value: Value) -> Node:
    """Return a literal."""
    is_boolean = value is None or isinstance(value, bool)
    return Node(lambda _: value, 1, is_boolean=is_boolean, is_constant=True, value=value)


def property_of(name: str) -> Node:
    """Return a property of the message."""
    return Node(lambda get: get(name), 1, property_name=name)


def as_boolean(node: Node) -> Node:
    """Return a node as a condition.

    Raises:
        ValueError: the node is a number or a string.
    """
    if node.is_boolean:
        return node
    name = node.property_name
    if name is None:
        raise ValueError(f"{node} is not a condition")
    # Properties are strings, never Booleans, so casting an existing property always gives false.
    return Node(lambda get: None if get(name) is None else False, 1, is_boolean=True)


def negative(node: Node) -> Node:
    """Return -node: the negated number, or null for anything else.

    The checks don't treat the result as a constant, as in RocketMQ.
    """
    inner = node.evaluate
    if node.is_boolean or node.property_name is not None:
        return Node(lambda get: _unknown(inner(get)), node.depth + 1)

    def evaluate(get: Get) -> Value:
        value = inner(get)
        return negate(value) if isinstance(value, Number) else None

    return Node(evaluate, node.depth + 1)


def logical_not(node: Node) -> Node:
    """Return NOT node, which is unknown if the node is unknown."""
    inner = node.evaluate

    def evaluate(get: Get) -> Value:
        value = inner(get)
        return None if value is None else not value

    return Node(evaluate, node.depth + 1, is_boolean=True)


def any_of(nodes: Sequence[Node]) -> Node:
    """Return the OR of conditions, evaluated from the left up to the first true condition."""
    inner = tuple(node.evaluate for node in nodes)

    def evaluate(get: Get) -> Value:
        result: bool | None = False
        for each in inner:
            value = each(get)
            if value is True:
                return True
            if value is None:
                result = None
        return result

    return Node(evaluate, _depth(*nodes), is_boolean=True)


def all_of(nodes: Sequence[Node]) -> Node:
    """Return the AND of conditions, evaluated from the left up to the first false condition."""
    inner = tuple(node.evaluate for node in nodes)

    def evaluate(get: Get) -> Value:
        result: bool | None = True
        for each in inner:
            value = each(get)
            if value is False:
                return False
            if value is None:
                result = None
        return result

    return Node(evaluate, _depth(*nodes), is_boolean=True)


def equal(left: Node, right: Node) -> Node:
    """Return left = right.

    Raises:
        ValueError: one side is NULL, or a Boolean constant is compared with another kind.
    """
    for side in (left, right):
        if side.is_constant and side.value is None:
            raise ValueError("NULL cannot be compared; use IS NULL")
    if left.is_constant and right.is_constant and left.is_boolean and not right.is_boolean:
        raise ValueError(f"{left} cannot be compared with {right}")
    return _equal(left, right)


def is_null(node: Node) -> Node:
    """Return node IS NULL, which is never unknown."""
    inner = node.evaluate
    return Node(lambda get: inner(get) is None, node.depth + 1, is_boolean=True)


def relation(left: Node, sign: str, right: Node) -> Node:
    """Return left > right, or another of the four relations.

    Raises:
        ValueError: one side is a condition, or a constant that isn't a number.
    """
    for side in (left, right):
        if side.is_boolean or (side.is_constant and not isinstance(side.value, Number)):
            raise ValueError(f"{side} cannot be compared with {sign}")
    name, value = left.property_name, right.value
    if name is not None and isinstance(value, Number) and value.kind is not NumberKind.DOUBLE:
        return _whole_relation(name, _OPERATORS[sign], value)
    holds = _RELATIONS[sign]
    left_of, right_of = left.evaluate, right.evaluate

    def evaluate(get: Get) -> Value:
        a = left_of(get)
        if a is None:
            return None
        b = right_of(get)
        if b is None:
            return None
        if isinstance(a, str) and isinstance(b, str):
            return holds(compare_as_doubles(a, b))
        return holds(compare(a, b))

    return Node(evaluate, _depth(left, right), is_boolean=True)


def between(node: Node, low: Node, high: Node) -> Node:
    """Return node BETWEEN low AND high.

    Raises:
        ValueError: a constant isn't a number, or low is above high.
    """
    result = all_of([relation(node, ">=", low), relation(node, "<=", high)])
    a, b = low.value, high.value
    if isinstance(a, Number) and isinstance(b, Number) and compare(a, b) > 0:
        raise ValueError(f"{low} is above {high}, so BETWEEN never matches")
    return result


def not_between(node: Node, low: Node, high: Node) -> Node:
    """Return node NOT BETWEEN low AND high, in whichever order.

    Raises:
        ValueError: a constant isn't a number.
    """
    return any_of([relation(node, "<", low), relation(node, ">", high)])


def is_in(node: Node, values: Sequence[str], *, is_not: bool) -> Node:
    """Return node IN values, or NOT IN.

    Raises:
        ValueError: the node isn't a property.
    """
    name = node.property_name
    if name is None:
        raise ValueError(f"IN requires a property, not {node}")
    wanted = frozenset(values)

    def evaluate(get: Get) -> Value:
        value = get(name)
        return None if value is None else (value in wanted) is not is_not

    return Node(evaluate, 1, is_boolean=True)


def contains(node: Node, text: str, *, is_not: bool) -> Node:
    """Return node CONTAINS text, or NOT CONTAINS.

    These conditions are never unknown. Both are false for a missing property, for anything that
    isn't a string, and for the empty string.
    """
    return _text_condition(node, text, str.__contains__, is_not=is_not)


def starts_with(node: Node, text: str, *, is_not: bool) -> Node:
    """Return node STARTSWITH text, or NOT STARTSWITH; both are false where `contains` is."""
    return _text_condition(node, text, str.startswith, is_not=is_not)


def ends_with(node: Node, text: str, *, is_not: bool) -> Node:
    """Return node ENDSWITH text, or NOT ENDSWITH; both are false where `contains` is."""
    return _text_condition(node, text, str.endswith, is_not=is_not)


_RELATIONS: dict[str, Callable[[int], bool]] = {
    ">": lambda order: order > 0,
    ">=": lambda order: order >= 0,
    "<": lambda order: order < 0,
    "<=": lambda order: order <= 0,
}


_OPERATORS: dict[str, Callable[[float, float], bool]] = {
    ">": operator.gt,
    ">=": operator.ge,
    "<": operator.lt,
    "<=": operator.le,
}


def _whole_relation(name: str, holds: Callable[[float, float], bool], number: Number) -> Node:
    """Return a property's comparison with a whole number, a fast path for the usual case."""
    kind, wanted = number

    def evaluate(get: Get) -> Value:
        text = get(name)
        return None if text is None else holds(read_whole(text, kind), wanted)

    return Node(evaluate, 1, is_boolean=True)


def _equal(left: Node, right: Node) -> Node:
    name, value = left.property_name, right.value
    if name is not None and isinstance(value, str):
        return Node(
            lambda get: None if (text := get(name)) is None else text == value, 1, is_boolean=True
        )
    if name is not None and isinstance(value, Number) and value.kind is not NumberKind.DOUBLE:
        return _whole_relation(name, operator.eq, value)
    left_of, right_of = left.evaluate, right.evaluate

    def evaluate(get: Get) -> Value:
        a, b = left_of(get), right_of(get)
        if a is None:
            # Two missing values are equal: Java compares the references.
            return True if b is None else None
        if b is None:
            return False
        return compare(a, b) == 0

    return Node(evaluate, _depth(left, right), is_boolean=True)


def _text_condition(
    node: Node, text: str, holds: Callable[[str, str], bool], *, is_not: bool
) -> Node:
    inner = node.evaluate
    if not text:
        return Node(lambda _: False, 1, is_boolean=True)

    def evaluate(get: Get) -> Value:
        value = inner(get)
        return isinstance(value, str) and holds(value, text) is not is_not

    return Node(evaluate, node.depth + 1, is_boolean=True)


def _depth(*nodes: Node) -> int:
    return 1 + max(node.depth for node in nodes)


def _unknown(_: Value) -> None:
    """Evaluate a value only for its error."""
