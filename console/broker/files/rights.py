"""Rights to change files: each entry requires an action on the topic or group it is about.

A topic's entry requires `topic.change` on it; a group's entry and its filters `group.change`; its
offsets `offset.reset` on the group. Everyone who is signed in can view files, as they can view
names, configurations and metrics.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from django.utils.translation import gettext as _

from console.accounts.actions import Action
from console.accounts.rights import NotAllowedError, ScopeMissingError, rights_now
from console.accounts.roles import Role
from console.broker.files.schema import AT
from console.gateway.files import ConfigFile
from console.lib.lists import shorten

if TYPE_CHECKING:
    from collections.abc import Iterable

    from django.core.exceptions import PermissionDenied

    from console.accounts.rights import Rights

ACTIONS = {
    ConfigFile.TOPICS: Action.TOPIC,
    ConfigFile.GROUPS: Action.GROUP,
    ConfigFile.OFFSETS: Action.OFFSET,
    ConfigFile.FILTERS: Action.GROUP,
}
"""The action for each file's entries; only administrators can change files not listed here."""
ADMINISTRATORS_SCOPE = "brokers:write"
OF_TOPIC_AND_GROUP = (ConfigFile.OFFSETS, ConfigFile.FILTERS)


def may_change(rights: Rights, file: ConfigFile) -> bool:
    """Return whether a person is allowed to change some entry of a file."""
    action = ACTIONS.get(file)
    if action is None:
        return rights.administers(ADMINISTRATORS_SCOPE)
    return rights.may_somewhere(action)


def require_change(rights: Rights, file: ConfigFile) -> None:
    """Refuse people who aren't allowed to change any entry of a file.

    Raises:
        NotAllowedError: the person isn't allowed.
    """
    if not may_change(rights, file):
        raise refused(rights, file)


def require_change_of_any(rights: Rights) -> None:
    """Refuse people who aren't allowed to change any entry of any file.

    Raises:
        NotAllowedError: the person isn't allowed.
    """
    if not any(may_change(rights, file) for file in ConfigFile):
        raise refused(rights, ConfigFile.TOPICS)


def require_entries(rights: Rights, file: ConfigFile, names: Iterable[str]) -> None:
    """Check the rights for all entries of a change.

    Raises:
        NotAllowedError: the person isn't allowed to change an entry; the error names the first.
    """
    not_theirs = others(rights, file, names)
    if not_theirs:
        raise refused(rights, file, subject_of(file, not_theirs[0]))


def objections(file: ConfigFile, names: Iterable[str]) -> list[str]:
    """Return why the current person isn't allowed some entries; the console's own work is allowed
    all.
    """
    rights = rights_now()
    if rights is None or not (not_theirs := others(rights, file, names)):
        return []
    shown, action = shorten(not_theirs), ACTIONS.get(file)
    why = refused(rights, file, subject_of(file, not_theirs[0]))
    if isinstance(why, ScopeMissingError):
        text = _(
            "This token doesn't have the scope %(scope)s, which is required to change %(names)s."
        )
        return [text % {"names": shown, "scope": why.scope}]
    if action is None:
        return [_("Only administrators can change %(names)s.") % {"names": shown}]
    text = _("You can't change %(names)s: this requires %(action)s there.")
    return [text % {"names": shown, "action": action.value}]


def others(rights: Rights, file: ConfigFile, names: Iterable[str]) -> list[str]:
    """Return the entries that a person isn't allowed to change."""
    action = ACTIONS.get(file)
    if action is None:
        return [] if rights.administers(ADMINISTRATORS_SCOPE) else sorted(names)
    return sorted(name for name in names if not rights.may(action, subject_of(file, name)))


def subject_of(file: ConfigFile, name: str) -> str:
    """Return the topic or group whose rights apply to an entry."""
    return name.partition(AT)[2] if file in OF_TOPIC_AND_GROUP else name


def refused(rights: Rights, file: ConfigFile, subject: str = "") -> PermissionDenied:
    """Return why a person or token isn't allowed to change an entry of a file."""
    action = ACTIONS.get(file)
    if action is not None:
        return rights.refusal(action, subject)
    if rights.is_all:
        return ScopeMissingError(ADMINISTRATORS_SCOPE)
    return NotAllowedError(Role.ADMINISTRATOR)
