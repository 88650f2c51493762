"""Filters that format a result's values as its description specifies."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django import template
from django.utils.html import format_html
from django.utils.translation import gettext as _

from console.data.reports.presenting import href_of, shown_cell, shown_value, whole, word

if TYPE_CHECKING:
    from collections.abc import Mapping

    from django.utils.safestring import SafeString

    from console.data.reports.catalog import Column
    from console.data.reports.message_links import MessageLinks

register = template.Library()


@register.simple_tag
def report_cell(row: Mapping[str, Any], column: Column, behind: MessageLinks) -> SafeString | str:
    """Format a value, linked to its page or to the messages that it counts."""
    value = row.get(column.name)
    text = shown_cell(value, column)
    href = behind.of_row(row, column) if whole(value) else ""
    return messages_link(href, text) if href else linked(value, column, text)


@register.simple_tag
def report_name(value: Any, column: Column) -> SafeString | str:
    """Format a value of a breakdown, linked like a cell."""
    return linked(value, column, word(value, column))


def linked(value: Any, column: Column, text: SafeString | str) -> SafeString | str:
    href = href_of(value, column)
    return format_html('<a href="{}">{}</a>', href, text) if href else text


@register.simple_tag
def report_sum(
    value: Any, column: Column, name: Any, by: Column, behind: MessageLinks
) -> SafeString | str:
    """Format a sum of a breakdown, linked to the messages that it counts."""
    text = shown_value(value, column.unit)
    href = behind.of_value(by, name, column) if whole(value) else ""
    return messages_link(href, text) if href else text


def messages_link(href: str, text: SafeString | str) -> SafeString:
    return format_html(
        '<a class="report-behind" href="{}" title="{}">{}</a>', href, _("Show messages"), text
    )
