"""What a form was opened on, so that it does not undo what somebody else saved meanwhile."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from django.core import signing
from django.utils.translation import gettext as _

if TYPE_CHECKING:
    from collections.abc import Mapping

    from console.configs.forms import ConfigForm

SALT = "console.configs.seen"


def seen(configs: Mapping[str, Any]) -> str:
    """Return the configurations by broker as a text that the form carries, signed."""
    return signing.dumps(_values(configs), salt=SALT)


def changed_meanwhile(token: str, configs: Mapping[str, Any], form: ConfigForm[Any]) -> list[str]:
    """Return what differs from what the form was opened on, one sentence each.

    A form without the text was made by a program, which is believed to know what it replaces.
    """
    if not token:
        return []
    try:
        before = signing.loads(token, salt=SALT)
    except signing.BadSignature:
        return [_("This form is not one of this console; look at the values and save again.")]
    now = _values(configs)
    new, gone = sorted(now.keys() - before.keys()), sorted(before.keys() - now.keys())
    sentences = [_("%(broker)s has it now.") % {"broker": broker} for broker in new]
    sentences += [_("%(broker)s has it no longer.") % {"broker": broker} for broker in gone]
    for broker in sorted(now.keys() & before.keys()):
        for name, value in now[broker].items():
            if (old := before[broker].get(name)) != value:
                field = form.fields.get(name)
                sentences.append(
                    _("%(label)s on %(broker)s is %(now)s now; it was %(before)s.")
                    % {
                        "label": field.label if field is not None and field.label else name,
                        "broker": broker,
                        "now": value,
                        "before": old,
                    }
                )
    return sentences


def _values(configs: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    return {broker: asdict(config) for broker, config in configs.items()}
