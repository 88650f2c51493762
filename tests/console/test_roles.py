"""Roles: the pages that each can open and post to, for every address of the URLconf."""

from __future__ import annotations

import pytest
from django.urls import reverse

from console.accounts.actions import Action
from console.accounts.models import CustomRole
from console.people.audit.models import Entry
from tests.console import test_audit_coverage
from tests.console.test_addresses import ALL, BY_TOKEN, PUBLIC, SIGNED, url_of
from tests.console.test_audit_coverage import data_of

# pytest finds a fixture by its name in this module.
world = test_audit_coverage.world

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("brokers")]

# A viewer can post changes to their own data. Extending this list or the next is a decision.
OWN = {
    "accounts:code",  # it redirects to the sign-in without a password
    "accounts:password",
    "accounts:second-step-codes",
    "accounts:second-step-off",
    "accounts:second-step-set-up",
    "accounts:session-end",
    "accounts:sessions-end",
    "accounts:sign-out",
    "preferences:language",
    "api:token-create",
    "api:token-delete",
    "preferences:own",
    "preferences:place",
    "preferences:theme",
}
# An operator can post these because of the action, for any name.
BY_ACTION = {
    "brokers:decide": Action.SEND,
    "clients:disconnect": Action.DISCONNECT,
    "dead_letters:cancel": Action.REPLAY,
    "dead_letters:discard": Action.REPLAY,
    "dead_letters:resume": Action.REPLAY,
    "dead_letters:start": Action.REPLAY,
    # For topics.json; each entry of a file needs the action of its subject.
    "files:edit": Action.TOPIC,
    "files:import": Action.TOPIC,
    "files:restore": Action.TOPIC,
    "files:undo": Action.TOPIC,
    "groups:create": Action.GROUP,
    "groups:delete": Action.GROUP,
    "groups:edit": Action.GROUP,
    "groups:label": Action.GROUP,
    "groups:label-undo": Action.GROUP,
    "groups:undo": Action.GROUP,
    "offsets:apply": Action.OFFSET,
    "offsets:restore": Action.OFFSET,
    "sending:deliver": Action.REPLAY,
    "sending:end": Action.SEND,
    "sending:forget": Action.SEND,
    "sending:send": Action.SEND,
    "topics:create": Action.TOPIC,
    "topics:delete": Action.TOPIC,
    "topics:edit": Action.TOPIC,
    "topics:label": Action.TOPIC,
    "topics:label-undo": Action.TOPIC,
    "topics:purge": Action.TOPIC,
    "topics:undo": Action.TOPIC,
}
# These need an action that only administrators have for every name.
BY_RARER_ACTION = {
    "browse:export": Action.EXPORT,
    "browse:unmask": Action.UNMASK,
    "dead_letters:export": Action.EXPORT,
}
OPERATORS_POST = set(BY_ACTION) | {
    "alerts:silence",
    "alerts:silence-end",
    "alerts:window-create",
    "alerts:window-delete",
    "alerts:window-edit",
    "marks:add",
    "marks:delete",
    "reports:cancel",
    "reports:schedule",
    "reports:schedule-delete",
    "reports:schedule-new",
    "reports:schedule-switch",
    "reports:start",
}
# Users without access ask an administrator for a permission, not for a role.
BY_PERMISSION = "sql:"
ASKED = [
    (name, parameters)
    for name, parameters in ALL
    if name not in PUBLIC | BY_TOKEN | SIGNED and not name.startswith(BY_PERMISSION)
]


@pytest.mark.parametrize(("name", "parameters"), ASKED, ids=[name for name, _ in ASKED])
def test_each_role_includes_the_previous_ones_permissions_and_posts_its_own(
    name, parameters, actors, limited
) -> None:
    url = url_of(name, parameters)
    clients = (limited, actors.reader, actors.operator, actors.admin)
    looks = [each.get(url).status_code for each in clients]
    posts = [each.post(url).status_code for each in clients]

    for each in (looks, posts):
        # Denied users come first.
        assert [status == 403 for status in each] == sorted(
            (status == 403 for status in each), reverse=True
        )
        assert each[-1] != 403
    if posts[-1] == 405:
        return
    if name in OWN:
        assert 403 not in posts
    elif name in OPERATORS_POST:
        # A missing schedule is 404 for everyone.
        assert set(posts[:2]) <= {403, 404}
        assert posts[2] != 403
    else:
        assert posts[:3] == [403, 403, 403]


def role_of_mine(account, topics: str, groups: str) -> None:
    """Assign a role with every action on some names."""
    every = [each.value for each in Action if each is not Action.OPERATE]
    role = CustomRole.objects.create(
        name="mine", actions=every, topics=topics.split(), groups=groups.split()
    )
    role.members.add(account)


CHANGED = {**BY_ACTION, **BY_RARER_ACTION}


@pytest.mark.parametrize("name", sorted(CHANGED))
def test_a_custom_role_changes_only_what_its_patterns_match(
    name, actors, limited, limited_account, world
) -> None:
    url = world.get(name) or url_of(name, dict(ALL)[name])
    data = data_of(name, url, actors.admin)
    role_of_mine(limited_account, "mine* %DLQ%billing", "mine*")

    refused = limited.post(url, data)

    assert refused.status_code == 403
    assert not Entry.objects.filter(actor=limited_account, outcome="done").exists()
    assert str(CHANGED[name].label) in refused.content.decode()

    CustomRole.objects.update(
        topics=["Ord?rs", "New"], groups=["bill*", "audit", "export", "new", "shop"]
    )
    assert limited.post(url, data).status_code in (200, 302)
    assert Entry.objects.filter(actor=limited_account, outcome="done").exists()


@pytest.mark.parametrize("action", [Action.SEE, Action.TOPIC])
def test_an_action_grants_nothing_that_needs_another_one(
    action, actors, limited, limited_account, world
) -> None:
    role_of_mine(limited_account, "*", "*")
    CustomRole.objects.update(actions=[action.value])

    done = [
        name
        for name, needed in CHANGED.items()
        if needed is not action
        and limited.post(world.get(name) or url_of(name, dict(ALL)[name])).status_code != 403
    ]

    assert done == []


def test_bodies_are_visible_only_with_a_role_for_their_topics(
    actors, limited, limited_account, brokers
) -> None:
    for topic in ("Orders", "Mine"):
        brokers.add_topic(topic)
        brokers.put_message(topic, 0, b'{"secret": 7}', 1_000, KEYS="K-1")
    pages = {
        topic: reverse("browse:message", args=["broker-a", 0, 0, topic])
        for topic in ("Orders", "Mine")
    }
    assert limited.get(pages["Mine"]).status_code == 403

    role_of_mine(limited_account, "Mi*", "")
    mine = limited.get(pages["Mine"])
    assert b"secret" in mine.content
    assert limited.get(pages["Orders"]).status_code == 403
    found = {"by": "key", "topic": "Orders", "text": "K-1"}
    assert limited.get(reverse("browse:find"), found).status_code == 403
    fields = {"topic": "Orders", "range": "1h"}
    assert limited.get(reverse("browse:search"), fields).status_code == 403
    assert limited.get(reverse("topics:detail", args=["Orders"])).status_code == 200

    CustomRole.objects.update(actions=[Action.SEE.value])
    seen = limited.get(pages["Mine"])
    assert seen.status_code == 200
    assert b"secret" not in seen.content
    searched = {"topic": "Mine", "range": "1h", "text": "secret"}
    answer = limited.get(reverse("browse:search"), searched)
    assert b"you need a role that can read bodies" in answer.content


def test_a_replay_to_their_own_topics_needs_permission_to_send_there(
    actors, limited, limited_account, brokers
) -> None:
    brokers.add_topic("Orders")
    brokers.add_group("billing")
    brokers.add_topic("%RETRY%billing", queue_nums=1)
    brokers.give_up("billing", "Orders", 1_000)
    role_of_mine(limited_account, "", "billing")
    preview = reverse("dead_letters:preview", args=["billing"])

    to_group = limited.get(preview, {"target": "retry", "rate": "1"})
    to_topic = limited.get(preview, {"target": "origin", "rate": "1"})

    assert (to_group.status_code, to_topic.status_code) == (200, 403)


def test_a_rejected_user_sees_the_required_role(actors, brokers) -> None:
    brokers.add_topic("Orders")

    topic = actors.reader.get(url_of("topics:create", []))
    people = actors.operator.get(url_of("people:list", []))

    assert "You need the role operator." in topic.content.decode()
    assert "You need the role administrator." in people.content.decode()


def test_the_frame_shows_the_role_and_its_permissions(actors) -> None:
    url = url_of("topics:list", [])

    viewer = actors.reader.get(url).content.decode()
    operator = actors.operator.get(url).content.decode()
    administrator = actors.admin.get(url).content.decode()

    assert ["Viewer" in viewer, "New topic" in viewer, "/audit/" in viewer] == [True, False, False]
    assert ["Operator" in operator, "New topic" in operator] == [True, True]
    assert ["/audit/" in operator, "/people/" in operator] == [False, False]
    assert ["Administrator" in administrator, "/people/" in administrator] == [True, True]
