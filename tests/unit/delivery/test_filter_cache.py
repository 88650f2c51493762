from __future__ import annotations

import pytest

from broker_core.delivery.filter_cache import FilterCache
from broker_core.delivery.tag_filter import TagFilter


class Compiler:
    def __init__(self) -> None:
        self.compiled: list[str] = []

    def __call__(self, topic: str, expression: str, expression_type: str | None) -> TagFilter:
        if expression.startswith("bad"):
            raise ValueError(expression)
        self.compiled.append(f"{expression} {expression_type}")
        return TagFilter(frozenset())


def test_an_expression_is_compiled_once() -> None:
    compiler = Compiler()
    cache = FilterCache(compiler, 100)

    first = cache("T", "a" * 40, "TAG")

    assert cache("U", "a" * 40, "TAG") is first
    assert cache("T", "a" * 40, None) is not first
    assert len(compiler.compiled) == 2


def test_the_most_recently_used_ones_are_kept_as_long_as_they_fit() -> None:
    compiler = Compiler()
    cache = FilterCache(compiler, 100)
    for letter in "ab":
        cache("T", letter * 40, None)
    cache("T", "a" * 40, None)

    cache("T", "c" * 40, None)
    cache("T", "a" * 40, None)
    cache("T", "b" * 40, None)

    assert [each[0] for each in compiler.compiled] == ["a", "b", "c", "b"]
    assert len(cache) == 2


def test_an_entry_longer_than_the_total_limit_is_not_kept() -> None:
    cache = FilterCache(Compiler(), 100)

    cache("T", "a" * 101, None)

    assert len(cache) == 0


def test_an_expression_that_does_not_compile_is_not_kept() -> None:
    cache = FilterCache(Compiler(), 100)

    for _ in range(2):
        with pytest.raises(ValueError, match="bad"):
            cache("T", "bad", None)
    assert len(cache) == 0
