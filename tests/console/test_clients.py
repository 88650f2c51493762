"""Connected clients: the list of producers, and disconnecting one."""

from __future__ import annotations

from html import unescape

import pytest
from django.urls import reverse

from console.accounts.models import CustomRole
from console.gateway.answers import Member
from console.gateway.connections import INNER_PRODUCER_GROUP, Producer
from console.gateway.errors import NameServerDownError, RequestFailedError
from console.people.audit.models import Entry

pytestmark = pytest.mark.django_db

URL = "/producers/g/{group}/disconnect/?client={client}"
WHERE = ("10.0.0.5@17", "10.0.0.5:4411", "JAVA", 407, 1_000, ("broker-a",))


@pytest.fixture
def clients(brokers):
    """A member of two groups that also sends, and a client that only sends."""
    worker = Member("10.0.0.5@17", "10.0.0.5:4411", "JAVA", 407, ("broker-a",))
    other = Member("10.0.0.6@9", "10.0.0.6:4412", "CPP", 407, ("broker-a",))
    brokers.add_group("billing")
    brokers.add_group("audit")
    brokers.members["billing"] = [worker, other]
    brokers.members["audit"] = [worker]
    brokers.producers += [Producer(each, *WHERE) for each in ("shop", INNER_PRODUCER_GROUP)]
    return brokers


def url_of(group: str = "billing", client: str = "10.0.0.5@17") -> str:
    return URL.format(group=group, client=client)


def groups_shown(client, url: str) -> str:
    html: str = client.get(url).content.decode()
    return html.partition('name="groups" value="')[2].partition('"')[0]


def test_producers_are_listed_by_group_without_those_inside_clients(actors, clients) -> None:
    own = actors.reader.get(reverse("clients:producers")).content.decode()
    inner = actors.reader.get(reverse("clients:producers") + "?kind=inner").content.decode()
    none = actors.reader.get(reverse("clients:producers") + "?q=nobody").content.decode()

    assert "10.0.0.5:4411" in own
    assert ">shop<" in own
    assert INNER_PRODUCER_GROUP not in own
    assert INNER_PRODUCER_GROUP in inner
    assert "No matching producers" in none
    assert "data-danger" not in own  # a viewer gets no buttons


def test_an_empty_list_explains_how_producers_get_there(actors, brokers, settings) -> None:
    settings.TREBUCHET_NAMESRV = ["10.0.0.1:9876", "10.0.0.2:9876"]
    html = unescape(actors.reader.get(reverse("clients:producers")).content.decode())

    assert "No producers connected" in html
    assert 'producer.setNamesrvAddr("10.0.0.1:9876;10.0.0.2:9876");' in html
    brokers.fails = NameServerDownError(["127.0.0.1:9876"], "connection refused")
    assert actors.reader.get(reverse("clients:producers")).status_code == 503


def test_the_confirmation_lists_the_clients_groups_and_promises_no_ban(actors, clients) -> None:
    html = actors.operator.get(url_of()).content.decode()

    assert "broker-a ← 10.0.0.5:4411" in html
    assert "audit, billing" in html
    assert "no other consumers: audit" in html
    assert "block the client" in html
    assert len(clients.members["billing"]) == 2


def test_a_client_is_disconnected_with_a_reason_that_is_audited(actors, clients) -> None:
    data = {"groups": groups_shown(actors.operator, url_of())}

    silent = actors.operator.post(url_of(), data)
    assert (silent.status_code, len(clients.members["billing"])) == (422, 2)
    done = actors.operator.post(url_of(), {**data, "reason": "it hangs"}, follow=True)

    assert "10.0.0.5@17 was disconnected. It reconnects automatically." in done.content.decode()
    assert [each.client_id for each in clients.members["billing"]] == ["10.0.0.6@9"]
    assert clients.members["audit"] == []
    entry = Entry.objects.get()
    assert (entry.action, entry.subject, entry.outcome) == (
        "client.disconnect",
        "10.0.0.5@17",
        "done",
    )
    assert entry.before["groups"] == ["CLIENT_INNER_PRODUCER", "audit", "billing", "shop"]
    assert entry.after == {"reason": "it hangs", "connections": ["broker-a 10.0.0.5:4411"]}


def test_a_client_that_joined_another_group_stays_and_is_confirmed_again(actors, clients) -> None:
    data = {"groups": "billing", "reason": "it hangs"}

    answer = actors.operator.post(url_of(), data)

    assert answer.status_code == 422
    assert "does not name" in answer.content.decode()
    assert len(clients.members["billing"]) == 2
    assert Entry.objects.get().outcome == "failed"


def test_permission_to_disconnect_from_one_group_removes_a_client_from_no_other(
    limited, limited_account, clients
) -> None:
    role = CustomRole.objects.create(
        name="mine", actions=["client.disconnect"], topics=[], groups=["billing"]
    )
    role.members.add(limited_account)
    data = {"groups": groups_shown(limited, url_of()), "reason": "mine alone"}

    assert limited.post(url_of(), data).status_code == 403
    assert len(clients.members["audit"]) == 1
    alone = url_of(client="10.0.0.6@9")
    assert limited.post(alone, {"groups": "billing", "reason": "mine"}).status_code == 302
    assert [each.client_id for each in clients.members["billing"]] == ["10.0.0.5@17"]


def test_a_broker_without_disconnect_support_is_reported_beforehand(actors, clients) -> None:
    clients.disconnect_fails = RequestFailedError("127.0.0.1:10911", 3, "request code 30016")

    html = actors.operator.get(url_of()).content.decode()

    assert "disconnect clients, which Apache RocketMQ" in html
    assert "danger-reason" not in html


def test_a_disconnected_client_has_no_page(actors, clients) -> None:
    assert actors.operator.get(url_of(client="gone")).status_code == 404
