"""The audit log: every change leaves an entry, whatever its outcome."""

from __future__ import annotations

import csv
import io
import json
import re
from typing import Any

import pytest
from django.test import RequestFactory
from django.urls import reverse

from console.people.audit.models import Entry
from console.people.audit.record import change
from console.people.audit.requests import REQUEST_ID, TOKEN
from console.people.audit.views import differences

pytestmark = pytest.mark.django_db


@pytest.fixture
def request_of_ada(admin_account):
    request = RequestFactory().post("/", REMOTE_ADDR="10.1.2.3")
    request.user = admin_account
    return request


def test_the_entry_is_written_before_the_change(request_of_ada) -> None:
    with change(request_of_ada, "topic.create", "Orders"):
        assert Entry.objects.get().outcome == Entry.Outcome.STARTED

    entry = Entry.objects.get()
    assert entry.outcome == Entry.Outcome.DONE
    assert (entry.actor_name, entry.address) == ("ada", "10.1.2.3")


def test_a_failed_change_is_also_an_entry(request_of_ada) -> None:
    with pytest.raises(RuntimeError), change(request_of_ada, "topic.delete", "Orders"):
        raise RuntimeError("the disk is full")

    entry = Entry.objects.get()
    assert (entry.outcome, entry.remark) == (Entry.Outcome.FAILED, "the disk is full")


def test_entries_outlive_the_account(request_of_ada, admin_account) -> None:
    with change(request_of_ada, "topic.create", "Orders"):
        pass

    admin_account.delete()

    entry = Entry.objects.get()
    assert entry.actor is None
    assert entry.actor_name == "ada"


def test_the_page_shows_changes_and_filters(actors, request_of_ada) -> None:
    with change(request_of_ada, "topic.update", "Orders", before={"perm": 6}, after={"perm": 4}):
        pass
    with change(request_of_ada, "group.create", "billing", after={"retry_max_times": 16}):
        pass

    every = actors.admin.get(reverse("audit:list")).content.decode()
    topics = actors.admin.get(reverse("audit:list"), {"action": "topic.update"}).content.decode()
    billing = actors.admin.get(reverse("audit:list"), {"q": "bill"}).content.decode()

    assert "perm: 6" in every
    assert "perm: 4" in every
    assert "billing" not in topics
    assert "Orders" not in billing


def test_a_request_is_found_by_its_id_with_all_its_changes(actors, request_of_ada) -> None:
    request_of_ada.META |= {REQUEST_ID: "4f2a9c", TOKEN: "pipeline"}
    for subject in ("Orders", "Bills"):
        with change(request_of_ada, "topic.update", subject):
            pass
    request_of_ada.META[REQUEST_ID] = "77bb01"
    with change(request_of_ada, "topic.update", "Other"):
        pass

    fields = {"q": "4f2a9c", "columns": ["who", "subject", "request"]}
    page = actors.admin.get(reverse("audit:list"), fields)

    assert sorted(row.entry.subject for row in page.context["rows"]) == ["Bills", "Orders"]
    text = page.content.decode()
    assert text.count("by token pipeline") == 2
    assert len(re.findall(r"<td[^>]*>4f2a9c</td>", text)) == 2
    assert "4f2a9c" not in actors.admin.get(reverse("audit:list")).content.decode()


def test_an_entry_links_to_its_subject(actors, brokers, request_of_ada, reader_account) -> None:
    for action, subject in (
        ("topic.update", "Orders"),
        ("group.create", "%RETRY%x"),
        ("offset.reset", "billing · Orders"),
        ("account.role", "rita"),
        ("account.role", "gone"),
        ("topic.delete", "Gone"),
        ("report.cancel", "traffic 7"),
    ):
        with change(request_of_ada, action, subject):
            pass

    html = actors.admin.get(reverse("audit:list")).content.decode()

    found = re.findall(r'data-label="Subject">\s*(?:<a href="([^"]+)">)?([^<]+)<', html)
    addresses = {subject.strip(): address for address, subject in found}
    assert addresses == {
        "Orders": reverse("topics:detail", args=["Orders"]),
        "%RETRY%x": reverse("groups:detail", args=["%RETRY%x"]),
        "billing · Orders": reverse("offsets:index") + "?group=billing&amp;topic=Orders",
        "rita": reverse("people:detail", args=[reader_account.pk]),
        "gone": "",
        "Gone": "",
        "traffic 7": reverse("reports:run", args=[7]),
    }


def test_the_export_matches_the_filter_and_is_itself_an_entry(actors, request_of_ada) -> None:
    with change(request_of_ada, "topic.update", "Orders", before={"perm": 6}, after={"perm": 4}):
        pass
    with change(request_of_ada, "group.create", '=HYPERLINK("x")'):
        pass

    html = actors.admin.get(reverse("audit:list"), {"q": "Orders"}).content.decode()
    # A change of the filter replaces only the list, so the form must be in it.
    form = html[html.index('id="list"') :].split("/audit/export/csv/")[1]
    assert re.search(r'name="q" value="Orders"', form)

    rows = exported(actors.admin, "jsonl")
    table = list(csv.DictReader(io.StringIO(text_of(actors.admin, "csv", action="group.create"))))

    assert [each["subject"] for each in rows] == ["Orders", '=HYPERLINK("x")']
    assert (rows[0]["before"], rows[0]["after"]) == ({"perm": 6}, {"perm": 4})
    assert (rows[0]["who"], rows[0]["address"]) == ("ada", "10.1.2.3")
    assert [each["subject"] for each in table] == ['\'=HYPERLINK("x")']
    ports = Entry.objects.filter(action="audit.export").order_by("pk")
    assert [each.after["entries"] for each in ports] == [2, 1]
    assert actors.operator.post(reverse("audit:export", args=["csv"])).status_code == 403
    assert actors.admin.post(reverse("audit:export", args=["pdf"])).status_code == 404


def text_of(client, kind: str, **data: str) -> str:
    answer = client.post(reverse("audit:export", args=[kind]), data)
    return b"".join(answer.streaming_content).decode()


def exported(client, kind: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text_of(client, kind).splitlines()]


def test_only_differing_leaves_are_shown() -> None:
    before = {"a": {"perm": 6, "order": False}, "gone": 1}
    after = {"a": {"perm": 4, "order": False}, "new": [1]}

    found = [(each.key, each.old, each.new) for each in differences(before, after)]

    assert found == [("a.perm", "6", "4"), ("gone", "1", None), ("new[0]", None, "1")]
