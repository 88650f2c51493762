"""Filters that show the values of a result in the form its description names."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django import template
from django.utils.html import format_html

from console.reports.presenting import href_of, shown_cell, shown_value

if TYPE_CHECKING:
    from collections.abc import Mapping

    from django.utils.safestring import SafeString

    from console.reports.catalog import Column

register = template.Library()


@register.simple_tag
def report_cell(row: Mapping[str, Any], column: Column) -> SafeString | str:
    """Show a value, as a link where the console has a page of what it names."""
    value = row.get(column.name)
    return linked(value, column, shown_cell(value, column))


@register.simple_tag
def report_name(value: Any, column: Column) -> SafeString | str:
    """Show a value of a breakdown, as a link like a cell's."""
    return linked(value, column, str(value))


def linked(value: Any, column: Column, text: SafeString | str) -> SafeString | str:
    href = href_of(value, column)
    return format_html('<a href="{}">{}</a>', href, text) if href else text


@register.simple_tag
def report_value(value: Any, column: Column) -> SafeString | str:
    return shown_value(value, column.unit)
