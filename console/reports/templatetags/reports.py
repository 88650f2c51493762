"""Filters that show the values of a result in the form its description names."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django import template

from console.reports.presenting import shown_cell, shown_value

if TYPE_CHECKING:
    from collections.abc import Mapping

    from django.utils.safestring import SafeString

    from console.reports.catalog import Column

register = template.Library()


@register.simple_tag
def report_cell(row: Mapping[str, Any], column: Column) -> SafeString | str:
    return shown_cell(row.get(column.name), column)


@register.simple_tag
def report_value(value: Any, column: Column) -> SafeString | str:
    return shown_value(value, column.unit)
