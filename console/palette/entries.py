"""Palette entries: pages to open and actions, each a URL with keywords."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import urlencode

from django.urls import reverse
from django.utils.translation import gettext as _

from console.accounts.actions import Action
from console.frame import NAVIGATION
from console.lib.recognition import MESSAGE_ID, location_in, named_in
from console.messages.browse.entries import (
    ENTRIES_MAX,
    Entry,
    best,
    broker_entry,
    group_entry,
    known_names,
    matches,
    topic_entry,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from console.accounts.rights import Rights
    from console.people.preferences.models import Place

ACTED_ON_MAX = 3
"""Number of matching topics and groups listed with their actions."""
KEY_CHARACTERS_MIN = 3


def find(
    asked: str, places: Iterable[Place], *, rights: Rights, may_administer: bool
) -> list[Entry]:
    """Return the entries that match every word, best first; without words, the pages."""
    words = asked.lower().split()
    always = [
        *(Entry(place.label, _("Favourite"), "star", place.address) for place in places),
        *pages(may_administer=may_administer),
        *actions(rights),
    ]
    if not words:
        return always[:ENTRIES_MAX]
    names = known_names()
    topics = best(names.topics, words)
    groups = best(names.groups, words)
    found = [entry for entry in always if matches(entry, words)]
    named = [
        *(topic_entry(name) for name in topics),
        *(group_entry(name) for name in groups),
        *(
            entry
            for entry in (broker_entry(name, number) for name, number in names.brokers)
            if matches(entry, words)
        ),
    ]
    # A verb isn't a topic name: "reset billing" is the action of a group.
    for name in matching_any_word(names.topics, words):
        found += (entry for entry in about_topic(name, rights) if matches(entry, words))
    for name in matching_any_word(names.groups, words):
        found += (entry for entry in about_group(name, rights) if matches(entry, words))
    ids, keys = about_messages(asked, names.topics)
    unique = dict.fromkeys([*ids, *named[:ACTED_ON_MAX], *found, *named])
    # Any word could be a key, so this entry comes last, in a reserved place.
    return [*list(unique)[: ENTRIES_MAX - len(keys)], *keys]


def pages(*, may_administer: bool) -> Iterator[Entry]:
    for each in NAVIGATION:
        if may_administer or not each.for_staff:
            yield Entry(str(each.label), _("Page"), each.icon, reverse(each.url_name))
    yield Entry(_("Name servers"), _("Page"), "server", reverse("brokers:name-servers"))
    yield Entry(_("Marks"), _("Page"), "tag", reverse("marks:list"))
    yield Entry(_("Settings"), _("Page"), "settings-2", reverse("preferences:own"))
    yield Entry(_("Sessions"), _("Page"), "monitor", reverse("accounts:sessions"))
    yield Entry(_("Two-step authentication"), _("Page"), "shield", reverse("accounts:second-step"))
    yield Entry(_("Change password"), _("Page"), "key-round", reverse("accounts:password"))


def actions(rights: Rights) -> Iterator[Entry]:
    hint = _("Action")
    if rights.may_somewhere(Action.TOPIC):
        yield Entry(_("Create a topic…"), hint, "plus", reverse("topics:create"))
    if rights.may_somewhere(Action.GROUP):
        yield Entry(_("Create a group…"), hint, "plus", reverse("groups:create"))
    if rights.may_somewhere(Action.OPERATE):
        start = reverse("reports:list") + "#start-report"
        yield Entry(_("Run a report…"), hint, "play", start)


def about_topic(name: str, rights: Rights) -> Iterator[Entry]:
    hint, live = _("Action"), reverse("tracing:river")
    query = urlencode({"topic": name})
    yield Entry(_("Watch topic %s live") % name, hint, "radio", f"{live}?{query}")
    if rights.may(Action.TOPIC, name):
        url = reverse("topics:edit", args=[name])
        yield Entry(_("Edit topic %s…") % name, hint, "pencil", url)
        url = reverse("topics:delete", args=[name])
        yield Entry(_("Delete topic %s…") % name, hint, "trash-2", url)


def about_group(name: str, rights: Rights) -> Iterator[Entry]:
    hint, live = _("Action"), reverse("tracing:river")
    query = urlencode({"group": name})
    offsets = f"{reverse('offsets:index')}?{query}"
    yield Entry(_("Watch group %s live") % name, hint, "radio", f"{live}?{query}")
    if rights.may(Action.OFFSET, name):
        yield Entry(_("Reset offsets of %s…") % name, hint, "rotate-ccw", offsets)
    else:
        yield Entry(_("Offsets of %s") % name, hint, "milestone", offsets)
    if rights.may(Action.GROUP, name):
        url = reverse("groups:edit", args=[name])
        yield Entry(_("Edit group %s…") % name, hint, "pencil", url)
        url = reverse("groups:delete", args=[name])
        yield Entry(_("Delete group %s…") % name, hint, "trash-2", url)


def about_messages(text: str, topics: Iterable[str]) -> tuple[list[Entry], list[Entry]]:
    """Return links to a message by ID or location, and to a search for everything else.

    Both search in the named topic, or in all topics.
    """
    topics = list(topics)
    address = reverse("browse:find")
    location = location_in(text, topics)
    if location is not None and location.topic:
        label = _("Message at %(topic)s %(queue)s · %(offset)s") % location._asdict()
        query = urlencode({"by": "place"} | location._asdict())
        return [Entry(label, _("Messages"), "search", f"{address}?{query}")], []
    named, others = named_in(text.split(), topics)
    if location is not None:
        # The search says that a topic is missing.
        others = [text.strip()]
    if len(others) != 1 or len(named) > 1 or len(others[0]) < KEY_CHARACTERS_MIN:
        return [], []
    text, topic = others[0], "".join(named)
    hint = topic or _("All topics")

    def entry(label: str, by: str) -> Entry:
        query = {"by": by, "topic": topic, "text": text}
        asked = urlencode({name: value for name, value in query.items() if value})
        return Entry(label % text, hint, "search", f"{address}?{asked}")

    if MESSAGE_ID.fullmatch(text):
        return [entry(_("Message with ID %s"), "id")], []
    if not topic:
        return [], [entry(_("Search everything for %s"), "any")]
    return [], [entry(_("Messages with key %s"), "key")]


def matching_any_word(names: Iterable[str], words: Sequence[str]) -> list[str]:
    """Return the names that contain at least one word, those with most matches first."""

    def held(name: str) -> int:
        return sum(word in name.lower() for word in words)

    found = [name for name in names if held(name)]
    found.sort(key=lambda name: (-held(name), len(name), name))
    return found[:ACTED_ON_MAX]
