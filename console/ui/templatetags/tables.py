"""Template tags for tables: the header, and cells that disappear with their column."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django import template
from django.utils.html import format_html
from django.utils.safestring import SafeString, mark_safe

from console.lib.tables import Table

if TYPE_CHECKING:
    from django.template.base import FilterExpression, NodeList, Parser, Token
    from django.template.context import Context

register = template.Library()


@register.inclusion_tag("ui/table_head.html", takes_context=True)
def table_head(context: Context, table: Table) -> dict[str, Any]:
    """Render the column names, as links if they are sortable."""
    return {"table": table, "request": context["request"]}


@register.inclusion_tag("ui/table_columns.html")
def table_columns(table: Table) -> dict[str, Any]:
    """Render the column menu."""
    return {"table": table}


class CellNode(template.Node):
    """`{% cell "lag" %}…{% endcell %}`: the column's cell in this row, if it is shown."""

    def __init__(self, name: FilterExpression, content: NodeList) -> None:
        self._name = name
        self._content = content

    def render(self, context: Context) -> SafeString:
        table = context["table"]
        assert isinstance(table, Table)
        column = table.shown(str(self._name.resolve(context)))
        if column is None:
            return SafeString("")
        is_first = column is table.columns[0]
        classes = [column.css, *(["num"] if column.is_number else [])]
        classes += ["table__name"] if is_first else ["fact"] if column.is_fact else []
        unit = f" ({column.unit})" if column.unit else ""
        return format_html(
            '<td class="{}" data-label="{}">{}</td>',
            " ".join(each for each in classes if each),
            "" if is_first else f"{column.label}{unit}",
            mark_safe(self._content.render(context)),
        )


@register.tag
def cell(parser: Parser, token: Token) -> CellNode:
    _tag, name = token.split_contents()
    content = parser.parse(("endcell",))
    parser.delete_first_token()
    return CellNode(parser.compile_filter(name), content)
