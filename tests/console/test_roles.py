"""Roles: what each opens and posts, for every address that the URLconf has."""

from __future__ import annotations

import pytest

from tests.console.test_addresses import ALL, BY_TOKEN, PUBLIC, SIGNED, url_of

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("brokers")]

# What a viewer may post: what is their own. To widen this or the next is a decision.
OWN = {
    "accounts:password",
    "accounts:session-end",
    "accounts:sessions-end",
    "accounts:sign-out",
    "preferences:own",
    "preferences:place",
    "preferences:theme",
}
OPERATORS_POST = {
    "alerts:silence",
    "alerts:silence-end",
    "alerts:window-create",
    "alerts:window-delete",
    "alerts:window-edit",
    "dead_letters:cancel",
    "dead_letters:discard",
    "dead_letters:resume",
    "dead_letters:start",
    "groups:create",
    "groups:delete",
    "groups:edit",
    "groups:undo",
    "marks:add",
    "marks:delete",
    "offsets:apply",
    "offsets:restore",
    "reports:cancel",
    "reports:schedule",
    "reports:schedule-delete",
    "reports:schedule-new",
    "reports:schedule-switch",
    "reports:start",
    "sending:deliver",
    "sending:end",
    "sending:forget",
    "sending:send",
    "topics:create",
    "topics:delete",
    "topics:edit",
    "topics:purge",
    "topics:undo",
}
# Who is refused here asks an administrator for a permission, not for a role.
BY_PERMISSION = "sql:"
ASKED = [
    (name, parameters)
    for name, parameters in ALL
    if name not in PUBLIC | BY_TOKEN | SIGNED and not name.startswith(BY_PERMISSION)
]


@pytest.mark.parametrize(("name", "parameters"), ASKED, ids=[name for name, _ in ASKED])
def test_each_role_may_what_those_before_it_may_and_posts_what_is_its(
    name, parameters, actors
) -> None:
    url = url_of(name, parameters)
    looks = [each.get(url).status_code for each in (actors.reader, actors.operator, actors.admin)]
    posts = [each.post(url).status_code for each in (actors.reader, actors.operator, actors.admin)]

    for viewer, operator, administrator in (looks, posts):
        assert administrator != 403
        assert operator != 403 or viewer == 403
    if posts[2] == 405:
        return
    if name in OWN:
        assert 403 not in posts
    elif name in OPERATORS_POST:
        # A schedule that is not there is 404 for everybody.
        assert posts[0] in (403, 404)
        assert posts[1] != 403
    else:
        assert posts[:2] == [403, 403]


def test_who_is_refused_reads_which_role_it_takes(actors, brokers) -> None:
    brokers.add_topic("Orders")

    topic = actors.reader.get(url_of("topics:create", []))
    people = actors.operator.get(url_of("people:list", []))

    assert "This takes the role operator." in topic.content.decode()
    assert "This takes the role administrator." in people.content.decode()


def test_the_frame_shows_the_role_and_what_it_may(actors) -> None:
    url = url_of("topics:list", [])

    viewer = actors.reader.get(url).content.decode()
    operator = actors.operator.get(url).content.decode()
    administrator = actors.admin.get(url).content.decode()

    assert ["Viewer" in viewer, "New topic" in viewer, "/audit/" in viewer] == [True, False, False]
    assert ["Operator" in operator, "New topic" in operator] == [True, True]
    assert ["/audit/" in operator, "/people/" in operator] == [False, False]
    assert ["Administrator" in administrator, "/people/" in administrator] == [True, True]
