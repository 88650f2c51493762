"""The message search: its criteria, and its result as a file."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from django.http import HttpRequest, StreamingHttpResponse
from django.utils.translation import gettext as _

from console.accounts.actions import Action
from console.accounts.permissions import require
from console.accounts.rights import rights_on
from console.lib.content import Filter, PathError, filter_of, path_of
from console.lib.missing import MissingError
from console.lib.moment import now_ms
from console.lib.stored import BrokerQueue, MessageRange
from console.messages.browse.exporting import KINDS, Collected
from console.observe.history.range import TimeRange, requested_range
from console.people.audit.record import change

if TYPE_CHECKING:
    from django.http.response import HttpResponseBase

RANGE, SHORTEST_MS = "15m", 1
NAME_CHARACTERS_MAX = 255
FIELDS_MAX, FIELD_CHARACTERS_MAX = 3, 120


class MessageSearch(NamedTuple):
    """A search; `queue` is None for the whole topic, `fields` are paths shown as columns."""

    topic: str
    queue: BrokerQueue | None
    span: TimeRange
    condition: Filter
    fields: tuple[str, ...]
    problem: str

    @property
    def wanted(self) -> MessageRange:
        return MessageRange(self.topic, self.span.low_ms, self.span.high_ms, self.queue)

    @property
    def subject(self) -> list[tuple[str, str]]:
        """All query parameters except the time."""
        return [
            *subject_query(self.topic, self.queue).items(),
            *self.condition.query.items(),
            *(("field", each) for each in self.fields),
        ]

    @property
    def query(self) -> list[tuple[str, str]]:
        """The query with the time of the search, so that later messages don't change the result."""
        span = {"from": str(self.span.low_ms), "to": str(self.span.high_ms)}
        return [*self.subject, *span.items()]


def subject_query(topic: str, queue: BrokerQueue | None) -> dict[str, str]:
    return {"topic": topic} | ({"queue": str(queue)} if queue is not None else {})


def criteria_of(request: HttpRequest) -> MessageSearch:
    """Return the search in a query string, without body fields that the person may not read."""
    queue: BrokerQueue | None = None
    queue_problem = ""
    try:
        if request.GET.get("queue"):
            queue = BrokerQueue.parse(request.GET["queue"])
    except ValueError:
        queue_problem = _("Enter a queue as broker:number, for example broker-a:0.")
    topic = request.GET.get("topic", "").strip()[:NAME_CHARACTERS_MAX]
    span = requested_range(request.GET, now_ms(), RANGE, SHORTEST_MS)
    condition = filter_of(request.GET)
    paths = [each.strip()[:FIELD_CHARACTERS_MAX] for each in request.GET.getlist("field")]
    fields = tuple(dict.fromkeys(each for each in paths if each))[:FIELDS_MAX]
    problem = span.problem or queue_problem
    if not rights_on(request).may(Action.READ, topic):
        fields = ()
        if condition.reads_bodies:
            problem = _(
                "To search message bodies, you need a role that can read bodies of this topic."
            )
    for each in (condition.path, *fields):
        try:
            path_of(each)
        except PathError:
            problem = _("%(path)s isn't a valid JSON path. Use a form like $.order.items[0].") % {
                "path": each
            }
            fields = ()
    return MessageSearch(topic, queue, span, condition, fields, problem)


def export_file(request: HttpRequest, kind: str, criteria: MessageSearch) -> HttpResponseBase:
    """Return a file under an audit log entry, or raise the 404 page for an unknown format."""
    if kind not in KINDS:
        raise MissingError(_("Messages can be exported as CSV or JSON lines."))
    require(request, Action.EXPORT, criteria.topic)
    after: dict[str, Any] = {
        "format": kind,
        "from_ms": str(criteria.span.low_ms),
        "to_ms": str(criteria.span.high_ms),
        "condition": criteria.condition.query,
    }
    with change(request, "message.export", criteria.topic, after=after) as entry:
        collected = Collected(criteria.wanted, criteria.condition)
        entry.after = after | {
            "messages": len(collected.messages),
            "is_whole": collected.is_whole,
        }
    lines, content_type = KINDS[kind]
    response = StreamingHttpResponse(lines(collected.messages), content_type=content_type)
    part = "" if collected.is_whole else ".part"
    response["Content-Disposition"] = f'attachment; filename="messages{part}.{kind}"'
    return response
