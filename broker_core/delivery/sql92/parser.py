"""Recursive descent parser of filter expressions.

    or      := and { OR and }
    and     := equality { AND equality }
    equality:= relation { = relation | <> relation | IS [NOT] NULL }
    relation:= unary { > unary | >= unary | < unary | <= unary
                     | [NOT] BETWEEN unary AND unary | [NOT] IN ( string {, string} )
                     | [NOT] CONTAINS string | [NOT] STARTSWITH string | [NOT] ENDSWITH string }
    unary   := + unary | - unary | NOT unary | primary
    primary := string | number | TRUE | FALSE | NULL | property | ( or )

There is no LIKE, no arithmetic and no `!=`. Only blanks and comments may follow the expression.

Source: filter/parser/SelectorParser.jj, filter/expression/ConstantExpression.java (5.3.3).
Differs: RocketMQ ignores any text after a complete expression, so that `a LIKE 'x%'` is the
property `a`, which never matches. CONTAINS, STARTSWITH and ENDSWITH may be property names, as in
4.9.7. Depth, length and the number of comparisons are limited, which limits the evaluation time.
"""

from __future__ import annotations

import math
from typing import Protocol

from broker_core.delivery.sql92 import expression as make
from broker_core.delivery.sql92.expression import Expression, Node
from broker_core.delivery.sql92.java_values import LONG_MAX, Number, NumberKind, whole_number
from broker_core.delivery.sql92.lexer import Lexer, Token, TokenKind

DEPTH_MAX = 32
"""Maximum nesting of parentheses, signs and NOTs, and maximum length of a chain of =."""
COMPARISONS_MAX = 256
DECIMAL_CHARS_MAX = 20
"""A whole number with more digits is out of range."""
FLOAT_CHARS_MAX = 512

CONSTANTS = {"TRUE": True, "FALSE": False, "NULL": None}
RELATIONS = (">", ">=", "<", "<=")


class TextCondition(Protocol):
    """Creates a condition on a node's text."""

    def __call__(self, node: Node, text: str, *, is_not: bool) -> Node: ...


TEXT_CONDITIONS: dict[str, TextCondition] = {
    "CONTAINS": make.contains,
    "STARTSWITH": make.starts_with,
    "ENDSWITH": make.ends_with,
}


def compile_expression(text: str) -> Expression:
    """Return the compiled expression.

    Raises:
        ValueError: the text isn't an expression, or exceeds a limit; the message says where.
    """
    parser = _Parser(text)
    node = make.as_boolean(parser.parse())
    return Expression(text, node.evaluate, parser.comparisons)


class _Parser:
    __slots__ = ("_depth", "_lexer", "comparisons")

    def __init__(self, text: str) -> None:
        self._lexer = Lexer(text)
        self._depth = 0
        self.comparisons = 0

    def parse(self) -> Node:
        node = self._or()
        self._lexer.skip_unended_comment()
        token = self._lexer.peek()
        if token.kind is not TokenKind.END:
            raise self._lexer.unexpected(token, "an operator, AND, OR or the end")
        return node

    def _or(self) -> Node:
        first = self._and()
        if not self._lexer.take_if("OR"):
            return first
        nodes = [make.as_boolean(first), make.as_boolean(self._and())]
        while self._lexer.take_if("OR"):
            nodes.append(make.as_boolean(self._and()))
        return make.any_of(nodes)

    def _and(self) -> Node:
        first = self._equality()
        if not self._lexer.take_if("AND"):
            return first
        nodes = [make.as_boolean(first), make.as_boolean(self._equality())]
        while self._lexer.take_if("AND"):
            nodes.append(make.as_boolean(self._equality()))
        return make.all_of(nodes)

    def _equality(self) -> Node:
        lexer = self._lexer
        left = self._relation()
        while True:
            if lexer.take_if("="):
                left = self._checked(make.equal(left, self._relation()))
            elif lexer.take_if("<>"):
                left = self._checked(make.logical_not(make.equal(left, self._relation())))
            elif lexer.take_if("IS"):
                is_not = lexer.take_if("NOT")
                self._expect("NULL")
                found = make.is_null(left)
                left = self._checked(make.logical_not(found) if is_not else found)
            else:
                return left

    def _relation(self) -> Node:
        lexer = self._lexer
        left = self._unary()
        while True:
            sign = lexer.peek().text
            if sign in RELATIONS and lexer.take_if(sign):
                left = self._checked(make.relation(left, sign, self._unary()))
                continue
            is_not = lexer.take_if("NOT")
            if lexer.take_if("BETWEEN"):
                low = self._unary()
                self._expect("AND")
                ends = low, self._unary()
                left = make.not_between(left, *ends) if is_not else make.between(left, *ends)
            elif lexer.take_if("IN"):
                left = make.is_in(left, self._strings(), is_not=is_not)
            elif condition := self._text_condition():
                left = condition(left, self._string(), is_not=is_not)
            elif is_not:
                raise lexer.unexpected(
                    lexer.peek(), f"one of BETWEEN, IN, {', '.join(TEXT_CONDITIONS)}"
                )
            else:
                return left
            self._checked(left)

    def _text_condition(self) -> TextCondition | None:
        """Consume the next token if it names a text condition; return its constructor."""
        token = self._lexer.peek()
        found = TEXT_CONDITIONS.get(token.text.upper()) if token.kind is TokenKind.NAME else None
        if found is not None:
            self._lexer.take()
        return found

    def _unary(self) -> Node:
        lexer = self._lexer
        self._depth += 1
        if self._depth > DEPTH_MAX:
            raise ValueError(f"the expression nests deeper than {DEPTH_MAX}")
        if lexer.take_if("+"):
            node = self._unary()
        elif lexer.take_if("-"):
            node = make.negative(self._unary())
        elif lexer.take_if("NOT"):
            node = make.logical_not(make.as_boolean(self._unary()))
        else:
            node = self._primary()
        self._depth -= 1
        return node

    def _primary(self) -> Node:
        token = self._lexer.take()
        kind, text = token.kind, token.text
        if kind is TokenKind.STRING:
            return make.constant(text)
        if kind is TokenKind.DECIMAL:
            return make.constant(_decimal(token))
        if kind is TokenKind.FLOAT:
            return make.constant(_float(token))
        if kind is TokenKind.NAME:
            return make.property_of(text)
        if kind is TokenKind.KEYWORD and text in CONSTANTS:
            return make.constant(CONSTANTS[text])
        if kind is TokenKind.SIGN and text == "(":
            node = self._or()
            self._expect(")")
            return node
        raise self._lexer.unexpected(token, "a value, a property or '('")

    def _strings(self) -> list[str]:
        self._expect("(")
        values = [self._string()]
        while self._lexer.take_if(","):
            values.append(self._string())
        self._expect(")")
        return values

    def _string(self) -> str:
        token = self._lexer.take()
        if token.kind is not TokenKind.STRING:
            raise self._lexer.unexpected(token, "text in single quotes")
        return token.text

    def _expect(self, text: str) -> None:
        if not self._lexer.take_if(text):
            raise self._lexer.unexpected(self._lexer.peek(), text)

    def _checked(self, node: Node) -> Node:
        self.comparisons += 1
        if self.comparisons > COMPARISONS_MAX:
            raise ValueError(f"the expression has more than {COMPARISONS_MAX} comparisons")
        # A chain such as a = 1 = TRUE = TRUE nests in the evaluation but not in the text.
        if node.depth > 4 * DEPTH_MAX:
            raise ValueError(f"the expression nests deeper than {DEPTH_MAX}")
        return node


def _decimal(token: Token) -> Number:
    digits = token.text.rstrip("lL")
    if len(digits) > DECIMAL_CHARS_MAX or int(digits) > LONG_MAX:
        raise ValueError(f"{digits[:DECIMAL_CHARS_MAX]} is above {LONG_MAX}")
    return whole_number(int(digits))


def _float(token: Token) -> Number:
    if len(token.text) > FLOAT_CHARS_MAX:
        raise ValueError(f"a number has more than {FLOAT_CHARS_MAX} characters")
    value = float(token.text)
    if math.isinf(value):
        raise ValueError(f"{token.text} is too large")
    # RocketMQ uses the smallest positive double as the smallest double.
    if value == 0:
        raise ValueError(f"{token.text} is too small; write 0")
    return Number(NumberKind.DOUBLE, value)
