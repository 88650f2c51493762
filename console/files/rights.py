"""Who may change what of a file: each of its entries takes the action of what it is about.

A topic's entry takes `topic.change` on it, a group's and that of its filters `group.change`, that
of its offsets `offset.reset` on the group. Looking is for everyone who has signed in, as names,
configurations and figures are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from django.utils.translation import gettext as _

from console.accounts.actions import Action
from console.accounts.rights import NotAllowedError, ScopeMissingError, rights_now
from console.accounts.roles import Role
from console.files.schema import AT
from console.gateway.files import ConfigFile
from console.ui.lists import shortened

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
"""What a change of an entry takes; a file that is not here is changed by administrators alone."""
ADMINISTRATORS_SCOPE = "brokers:write"
OF_TOPIC_AND_GROUP = (ConfigFile.OFFSETS, ConfigFile.FILTERS)


def may_change(rights: Rights, file: ConfigFile) -> bool:
    """Whether somebody may change some entry of a file."""
    action = ACTIONS.get(file)
    if action is None:
        return rights.administers(ADMINISTRATORS_SCOPE)
    return rights.may_somewhere(action)


def require_change(rights: Rights, file: ConfigFile) -> None:
    """Refuse who may change no entry of a file.

    Raises:
        NotAllowedError: they may not.
    """
    if not may_change(rights, file):
        raise refused(rights, file)


def require_change_of_any(rights: Rights) -> None:
    """Refuse who may change no entry of any file.

    Raises:
        NotAllowedError: they may not.
    """
    if not any(may_change(rights, file) for file in ConfigFile):
        raise refused(rights, ConfigFile.TOPICS)


def require_entries(rights: Rights, file: ConfigFile, names: Iterable[str]) -> None:
    """Refuse a change of entries of which one is not theirs to change.

    Raises:
        NotAllowedError: it names the first of these.
    """
    not_theirs = others(rights, file, names)
    if not_theirs:
        raise refused(rights, file, subject_of(file, not_theirs[0]))


def objections(file: ConfigFile, names: Iterable[str]) -> list[str]:
    """Return why the person this runs for may not change some entries; work of ours may."""
    rights = rights_now()
    if rights is None or not (not_theirs := others(rights, file, names)):
        return []
    shown, action = shortened(not_theirs), ACTIONS.get(file)
    why = refused(rights, file, subject_of(file, not_theirs[0]))
    if isinstance(why, ScopeMissingError):
        said = _("This token lacks the scope %(scope)s to change %(names)s.")
        return [said % {"names": shown, "scope": why.scope}]
    if action is None:
        return [_("Only an administrator may change %(names)s.") % {"names": shown}]
    said = _("You may not change %(names)s: this takes %(action)s there.")
    return [said % {"names": shown, "action": action.value}]


def others(rights: Rights, file: ConfigFile, names: Iterable[str]) -> list[str]:
    """Return the entries that are not somebody's to change."""
    action = ACTIONS.get(file)
    if action is None:
        return [] if rights.administers(ADMINISTRATORS_SCOPE) else sorted(names)
    return sorted(name for name in names if not rights.may(action, subject_of(file, name)))


def subject_of(file: ConfigFile, name: str) -> str:
    """Return the topic or the group that decides about an entry."""
    return name.partition(AT)[2] if file in OF_TOPIC_AND_GROUP else name


def refused(rights: Rights, file: ConfigFile, subject: str = "") -> PermissionDenied:
    """Return why a person, or a token of theirs, may not change an entry of a file."""
    action = ACTIONS.get(file)
    if action is not None:
        return rights.refusal(action, subject)
    if rights.is_all:
        return ScopeMissingError(ADMINISTRATORS_SCOPE)
    return NotAllowedError(Role.ADMINISTRATOR)
