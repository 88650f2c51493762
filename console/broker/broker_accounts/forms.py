"""Forms for broker accounts, whitelisted addresses and access checks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django import forms
from django.core.validators import RegexValidator
from django.utils.translation import gettext as _, gettext_lazy

from console.gateway.accounts import (
    GROUP_PERMISSIONS,
    PERMISSIONS,
    AccessQuestion,
    BrokerAccount,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

KEY_CHARACTERS_MIN, KEY_CHARACTERS_MAX = 7, 64
LINES_MAX = 500
LINE_CHARACTERS_MAX = 300
TEXT = {"autocomplete": "off", "spellcheck": "false"}
PLAIN_KEY = RegexValidator(
    r"^[!-~]*\Z",
    gettext_lazy("An access key can contain letters, digits and symbols, but no spaces."),
)

SEND, READ, CONSUME, ADMINISTER = "send", "read", "consume", "administer"
QUESTIONS = {
    SEND: gettext_lazy("Send to a topic"),
    READ: gettext_lazy("Read a topic"),
    CONSUME: gettext_lazy("Consume as a group"),
    ADMINISTER: gettext_lazy("Administer the broker"),
}


class Lines(forms.CharField):
    """Lines of text, without blank ones."""

    def __init__(self, **options: Any) -> None:
        rows = {**TEXT, "rows": 4, "class": "input mono"}
        super().__init__(
            required=False,
            max_length=LINES_MAX * LINE_CHARACTERS_MAX,
            widget=forms.Textarea(attrs=rows),
            **options,
        )

    def clean(self, value: Any) -> Any:
        text = super().clean(value)
        return [line.strip() for line in text.splitlines() if line.strip()]


class Permissions(Lines):
    """Lines of `name=PERMISSION`, as a dict."""

    def __init__(self, words: Sequence[str], **options: Any) -> None:
        super().__init__(**options)
        self.words = words

    def clean(self, value: Any) -> Any:
        found: dict[str, str] = {}
        lines = super().clean(value)
        if len(lines) > LINES_MAX:
            text = _("At most %(count)d lines.") % {"count": LINES_MAX}
            raise forms.ValidationError(text)
        for line in lines:
            name, _equals, word = (each.strip() for each in line.partition("="))
            word = {"SUB|PUB": "PUB|SUB"}.get(word.upper(), word.upper())
            is_name = name and "," not in name and not any(each.isspace() for each in name)
            if not is_name or word not in self.words:
                text = _("“%(line)s” isn't valid. Use name=value with one of %(words)s.")
                values = {"line": line[:LINE_CHARACTERS_MAX], "words": ", ".join(self.words)}
                raise forms.ValidationError(text % values)
            if name in found:
                raise forms.ValidationError(_("%(name)s is listed twice.") % {"name": name})
            found[name] = word
        return found


class AccountForm(forms.Form):
    """An account's permissions. `account` is None for a new account."""

    access_key = forms.CharField(
        label=gettext_lazy("Access key"),
        min_length=KEY_CHARACTERS_MIN,
        max_length=KEY_CHARACTERS_MAX,
        validators=[PLAIN_KEY],
        widget=forms.TextInput(attrs=TEXT),
        help_text=gettext_lazy("The account's name, at least 7 characters. It isn't secret."),
    )
    is_admin = forms.BooleanField(
        label=gettext_lazy("Administrator"),
        required=False,
        help_text=gettext_lazy(
            "Broker administrator; if no permissions are set below, it can do everything."
        ),
    )
    default_topic_perm = forms.ChoiceField(
        label=gettext_lazy("Default topic permission"),
        choices=[(each, each) for each in PERMISSIONS],
    )
    default_group_perm = forms.ChoiceField(
        label=gettext_lazy("Default group permission"),
        choices=[(each, each) for each in PERMISSIONS],
    )
    topic_perms = Permissions(
        PERMISSIONS,
        label=gettext_lazy("Topics"),
        help_text=gettext_lazy("One per line: orders=PUB|SUB. DENY, PUB (send), SUB (read)."),
    )
    group_perms = Permissions(
        GROUP_PERMISSIONS,
        label=gettext_lazy("Groups"),
        help_text=gettext_lazy("One per line: billing=SUB. DENY or SUB (consume)."),
    )
    white_address = forms.CharField(
        label=gettext_lazy("Whitelisted addresses"),
        required=False,
        max_length=LINE_CHARACTERS_MAX,
        widget=forms.TextInput(attrs=TEXT),
        help_text=gettext_lazy(
            "Requests from these addresses need no signature and no permission: 10.1.2.*, "
            "10.1.2.1-9."
        ),
    )
    seen = forms.CharField(required=False, widget=forms.HiddenInput)

    def __init__(self, data: Any = None, *, account: BrokerAccount | None = None) -> None:
        super().__init__(data)
        self.account = account
        if account is not None:
            del self.fields["access_key"]
            self.initial.update(initial_of(account))

    def wanted(self) -> BrokerAccount:
        """Return the account that the form describes."""
        data = self.cleaned_data
        key = data["access_key"] if self.account is None else self.account.access_key
        return BrokerAccount(
            access_key=key,
            is_admin=data["is_admin"],
            default_topic_perm=data["default_topic_perm"],
            default_group_perm=data["default_group_perm"],
            topic_perms=data["topic_perms"],
            group_perms=data["group_perms"],
            white_address=data["white_address"],
        )


def initial_of(account: BrokerAccount) -> dict[str, Any]:
    return {
        "is_admin": account.is_admin,
        "default_topic_perm": account.default_topic_perm,
        "default_group_perm": account.default_group_perm,
        "topic_perms": lines_of(account.topic_perms),
        "group_perms": lines_of(account.group_perms),
        "white_address": account.white_address,
    }


def lines_of(perms: Mapping[str, str]) -> str:
    return "\n".join(f"{name}={word}" for name, word in perms.items())


class WhiteForm(forms.Form):
    """Addresses that don't need an account."""

    addresses = Lines(
        label=gettext_lazy("Addresses"),
        help_text=gettext_lazy("One per line: 10.1.2.3, 10.1.2.*, 10.1.2.1-9."),
    )
    seen = forms.CharField(required=False, widget=forms.HiddenInput)


class QuestionForm(forms.Form):
    """An access check: an account, an action and an address."""

    access_key = forms.CharField(
        label=gettext_lazy("Access key"),
        required=False,
        max_length=KEY_CHARACTERS_MAX,
        widget=forms.TextInput(attrs={**TEXT, "list": "access-keys"}),
    )
    address = forms.GenericIPAddressField(
        label=gettext_lazy("Client address"), widget=forms.TextInput(attrs=TEXT)
    )
    action = forms.ChoiceField(
        label=gettext_lazy("Operation"), choices=list(QUESTIONS.items()), initial=SEND
    )
    name = forms.CharField(
        label=gettext_lazy("Topic or group"),
        required=False,
        max_length=255,
        widget=forms.TextInput(attrs=TEXT),
    )

    def clean(self) -> dict[str, Any]:
        data = super().clean() or {}
        if data.get("action") != ADMINISTER and not data.get("name"):
            self.add_error("name", _("Enter a topic or a group."))
        return data

    def question(self) -> AccessQuestion:
        data = self.cleaned_data
        action = data["action"]
        return AccessQuestion(
            address=data["address"],
            action={SEND: "PUB", ADMINISTER: "ADMIN"}.get(action, "SUB"),
            access_key=data["access_key"],
            topic=data["name"] if action in {SEND, READ} else "",
            group=data["name"] if action == CONSUME else "",
        )
