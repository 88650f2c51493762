"""Pages of the message search: the search page and its further steps."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlencode

from django.http import StreamingHttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils.translation import gettext as _

from console.accounts.actions import Action
from console.accounts.permissions import action_for, page, require
from console.accounts.rights import rights_on
from console.gateway.access import gateway
from console.gateway.answers import TopicKind
from console.gateway.errors import GatewayError
from console.lib.content import Filter, PathError, filter_of, path_of
from console.lib.missing import MissingError
from console.lib.moment import now_ms
from console.lib.stored import BrokerQueue, MessageRange
from console.lib.tables import COLUMNS as COLUMNS_FIELD, Table
from console.messages.browse.columns import NAMES_OFFERED_MAX, columns_with, rows_of
from console.messages.browse.distribution import distribution_of
from console.messages.browse.exporting import KINDS, Collected
from console.messages.browse.scanning import progress_of, step
from console.observe.history.range import requested_range
from console.people.audit.record import change

if TYPE_CHECKING:
    from django.http import HttpRequest, HttpResponse
    from django.http.response import HttpResponseBase

    from console.observe.history.range import TimeRange

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


@page
def search(request: HttpRequest) -> HttpResponse:
    """Show a topic's messages in a time range that match the conditions, newest first."""
    criteria = criteria_of(request)
    topics = gateway().topics.all()
    names = [name for name, each in topics.items() if each.kind is not TopicKind.SYSTEM]
    without_queue = MessageSearch(**criteria._asdict() | {"queue": None})
    context: dict[str, Any] = {
        "criteria": criteria,
        "time_range": criteria.span,
        "range_kept": f"{urlencode(criteria.subject)}&" if criteria.topic else "",
        "all_queues": f"{urlencode(without_queue.subject)}&{criteria.span.query}",
        "range_fields": criteria.subject if criteria.topic else (),
        "names": names[:NAMES_OFFERED_MAX],
        "is_unknown": bool(criteria.topic) and criteria.topic not in topics,
        "table": Table(request, columns_with(criteria.fields)),
        "search_query": urlencode(criteria.query),
        "kinds": [("csv", "CSV"), ("jsonl", "JSON lines")],
        "read_at_ms": now_ms(),
    }
    if criteria.topic in topics and not criteria.problem:
        context |= step_context(request, criteria)
    return render(request, "browse/search.html", context)


@page
def scan(request: HttpRequest) -> HttpResponse:
    """Show the results of the next step as rows below those already shown."""
    criteria = complete_search(request)
    table = Table(request, columns_with(criteria.fields))
    try:
        context = step_context(request, criteria)
    except GatewayError as error:
        again = urlencode([*criteria.query, *progress_of(request.GET).place_query.items()])
        context = {"scan_problem": error, "go_on": again}
    return render(request, "browse/_found.html", context | {"table": table, "criteria": criteria})


def step_context(request: HttpRequest, criteria: MessageSearch) -> dict[str, Any]:
    """Run one step, and return where the next one begins."""
    done = step(criteria.wanted, criteria.condition, progress_of(request.GET))
    columns = [(COLUMNS_FIELD, each) for each in request.GET.getlist(COLUMNS_FIELD)]
    kept = [*criteria.query, *columns]
    return {
        "rows": rows_of(done.messages, criteria.fields),
        "progress": done.progress,
        "unread_bodies": done.unread_bodies,
        "next_step": urlencode([*kept, *done.progress.step_query.items()]),
        "go_on": urlencode([*kept, *done.progress.place_query.items()]),
    }


@page
def distribution(request: HttpRequest) -> HttpResponse:
    """Show the distribution of a search's messages over queues, tags, hosts, sizes and hours."""
    criteria = complete_search(request)
    context = {
        "criteria": criteria,
        "time_range": criteria.span,
        "found": distribution_of(criteria.wanted, criteria.condition),
        "search_query": urlencode(criteria.query),
        "read_at_ms": now_ms(),
    }
    return render(request, "browse/distribution.html", context)


def complete_search(request: HttpRequest) -> MessageSearch:
    """Return a complete search.

    Raises:
        MissingError: the topic is missing, or the person isn't allowed this search.
    """
    criteria = criteria_of(request)
    if not criteria.topic or criteria.problem:
        raise MissingError(criteria.problem or _("Choose a topic to search."))
    return criteria


@action_for(Action.EXPORT)
def export(request: HttpRequest, kind: str) -> HttpResponseBase:
    """Return a search's messages as a file, and record the export."""
    return export_file(request, kind, complete_search(request))


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


@page
def of_group(request: HttpRequest, group: str) -> HttpResponse:
    """Redirect to the messages of a time in the topic where the group has the most lag."""
    lags: dict[str, int] = {}
    for row in gateway().groups.progress(group).queues:
        lags[row.topic] = lags.get(row.topic, 0) + (row.lag or 0)
    if not lags:
        raise MissingError(_("Group %(name)s hasn't read any topic yet.") % {"name": group})
    topic = max(lags, key=lambda name: (lags[name], name))
    span = requested_range(request.GET, now_ms(), RANGE, SHORTEST_MS)
    if span.problem:
        raise MissingError(span.problem)
    return redirect(f"{reverse('browse:search')}?{urlencode({'topic': topic})}&{span.query}")
