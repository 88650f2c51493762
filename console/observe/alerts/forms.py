"""The forms of the alert pages."""

from __future__ import annotations

import secrets as random_secrets
from datetime import datetime, time
from typing import TYPE_CHECKING, Any

from django import forms
from django.conf import settings
from django.core.exceptions import ValidationError
from django.core.validators import validate_email
from django.utils.translation import gettext, gettext_lazy as _

from console.observe.alerts.models import Channel, Preferences, Rule, Window
from console.observe.alerts.observing import MISSING_MINUTES_MAX
from console.observe.alerts.queries import queries
from console.observe.alerts.series import SERIES
from console.observe.alerts.targets import TargetError, parsed
from console.observe.alerts.windows import MINUTES_MAX, zones
from console.observe.verdicts.words import WORDS

if TYPE_CHECKING:
    from collections.abc import Iterable

    # Django's class isn't generic at run time.
    RuleModelForm = forms.ModelForm[Rule]
    ChannelModelForm = forms.ModelForm[Channel]
    WindowModelForm = forms.ModelForm[Window]
    PreferencesModelForm = forms.ModelForm[Preferences]
else:
    RuleModelForm = ChannelModelForm = forms.ModelForm
    WindowModelForm = PreferencesModelForm = forms.ModelForm

MINUTES_IN_A_DAY = 1_440
ADDRESSES_MAX = 20
PATTERN_HELP = _("* matches any characters. Separate patterns with spaces.")
PLAIN = {"autocomplete": "off", "spellcheck": "false"}
SECRET_BYTES = 32


def ask(form: forms.BaseForm, name: str, choices: Iterable[tuple[str, Any]]) -> None:
    """Replace the dashes of an empty selection with a prompt."""
    field = form.fields[name]
    assert isinstance(field, forms.ChoiceField)
    field.choices = [("", _("Choose")), *choices]


class RuleForm(RuleModelForm):
    """When an alert fires, and which channels are notified."""

    verdicts = forms.MultipleChoiceField(
        label=_("Issues"),
        required=False,
        widget=forms.CheckboxSelectMultiple,
        choices=lambda: [(name, words.title) for name, words in WORDS.items()],
        help_text=_("Leave all unchecked to include every issue type, including ones added later."),
    )
    series = forms.ChoiceField(label=_("Metric"), required=False)
    version = forms.IntegerField(widget=forms.HiddenInput, required=False)

    class Meta:
        model = Rule
        fields = (
            *("name", "enabled", "source", "verdicts", "least", "series", "query"),
            *(
                "compare",
                "fires_at",
                "clears_at",
                "severity",
                "broker_pattern",
                "name_pattern",
                "for_minutes",
            ),
            *("clear_minutes", "repeat_minutes", "group_by", "channels", "version"),
        )
        labels = {
            "name": _("Name"),
            "enabled": _("Enabled"),
            "source": _("Applies to"),
            "least": _("Minimum severity"),
            "query": _("Scheduled query"),
            "compare": _("Fires when the metric"),
            "fires_at": _("Threshold"),
            "clears_at": _("Clears at"),
            "severity": _("Severity"),
            "broker_pattern": _("Brokers"),
            "name_pattern": _("Groups, topics or brokers"),
            "for_minutes": _("Fires after"),
            "clear_minutes": _("Resolves after"),
            "repeat_minutes": _("Repeat every"),
            "group_by": _("Messages"),
            "channels": _("Channels"),
        }
        help_texts = {
            "query": _("Fires when a run returns rows. Resolves when a run returns no rows."),
            "clears_at": _(
                "Between the two thresholds the alert keeps its state, so it doesn't flap."
            ),
            "broker_pattern": PATTERN_HELP,
            "name_pattern": PATTERN_HELP,
            "for_minutes": _("minutes the condition must hold"),
            "clear_minutes": _("minutes the condition must be clear"),
            "repeat_minutes": _("minutes; 0 means never repeat"),
        }
        widgets = {
            "channels": forms.CheckboxSelectMultiple,
            "name": forms.TextInput(attrs=PLAIN),
            "broker_pattern": forms.TextInput(attrs=PLAIN),
            "name_pattern": forms.TextInput(attrs=PLAIN),
        }

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        for name in ("fires_at", "clears_at", "compare", "least", "severity"):
            self.fields[name].required = False
        query = self.fields["query"]
        assert isinstance(query, forms.ModelChoiceField)
        query.queryset = queries().scheduled()
        series = self.fields["series"]
        assert isinstance(series, forms.ChoiceField)
        kinds: dict[str, list[tuple[str, str]]] = {}
        names = {
            "topic": gettext("Topics"),
            "group": gettext("Groups"),
            "queue": gettext("Group queues"),
            "broker": gettext("Brokers"),
            "process": gettext("Processes of this appliance"),
        }
        for key, each in SERIES.items():
            kinds.setdefault(names[each.kind], []).append((key, each.label))
        series.choices = list(kinds.items())
        ask(self, "source", Rule.Source.choices)
        for name in ("for_minutes", "clear_minutes"):
            self._limit(name, MINUTES_IN_A_DAY)
        self._limit("repeat_minutes", 7 * MINUTES_IN_A_DAY)
        self.fields["version"].initial = self.instance.version

    def _limit(self, name: str, most: int) -> None:
        field = self.fields[name]
        assert isinstance(field, forms.IntegerField)
        field.max_value = most
        field.widget.attrs |= {"min": 0, "max": most}

    def clean(self) -> dict[str, Any]:
        cleaned: dict[str, Any] = super().clean() or {}
        for name in ("for_minutes", "clear_minutes", "repeat_minutes"):
            most = 7 * MINUTES_IN_A_DAY if name == "repeat_minutes" else MINUTES_IN_A_DAY
            if (cleaned.get(name) or 0) > most:
                self.add_error(name, gettext("At most %(most)d minutes.") % {"most": most})
        for name in ("broker_pattern", "name_pattern"):
            if name in cleaned and not cleaned[name].strip(", "):
                self.add_error(name, gettext("Enter a pattern. * matches everything."))
        if cleaned.get("source") == Rule.Source.THRESHOLD:
            self._clean_threshold(cleaned)
        if cleaned.get("source") != Rule.Source.QUERY:
            cleaned["query"] = None
        elif not cleaned.get("query") and "query" not in self.errors:
            self.add_error(
                "query", gettext("Choose a query. Scheduled queries appear in this list.")
            )
        # Fields of the other source aren't shown and keep a value that the model accepts.
        cleaned["least"] = cleaned.get("least") or Rule.Severity.BAD
        cleaned["severity"] = cleaned.get("severity") or Rule.Severity.WARN
        cleaned["compare"] = cleaned.get("compare") or Rule.Compare.ABOVE
        for name in ("fires_at", "clears_at"):
            cleaned[name] = cleaned.get(name) or 0.0
        return cleaned

    def _clean_threshold(self, cleaned: dict[str, Any]) -> None:
        if not cleaned.get("series"):
            self.add_error("series", gettext("Choose a metric."))
        compare = cleaned.get("compare") or Rule.Compare.ABOVE
        if compare == Rule.Compare.MISSING:
            if (cleaned.get("for_minutes") or 0) > MISSING_MINUTES_MAX:
                self.add_error(
                    "for_minutes",
                    gettext("At most %(most)d minutes for a missing metric.")
                    % {"most": MISSING_MINUTES_MAX},
                )
            return
        fires, clears = cleaned.get("fires_at"), cleaned.get("clears_at")
        if fires is None:
            if "fires_at" not in self.errors:
                self.add_error("fires_at", gettext("Enter a threshold."))
            return
        if clears is None:
            cleaned["clears_at"] = fires
        elif compare == Rule.Compare.ABOVE and clears > fires:
            self.add_error(
                "clears_at", gettext("This threshold can't be above the firing threshold.")
            )
        elif compare == Rule.Compare.BELOW and clears < fires:
            self.add_error(
                "clears_at", gettext("This threshold can't be below the firing threshold.")
            )


class ChannelForm(ChannelModelForm):
    """A channel. Secrets are never shown again; empty secret fields keep the stored values."""

    url = forms.CharField(
        label=_("Address"),
        required=False,
        max_length=2_000,
        widget=forms.TextInput(attrs={**PLAIN, "placeholder": "https://"}),
        help_text=_("This value isn't shown again. Leave it empty to keep the current value."),
    )
    secret = forms.CharField(
        label=_("Secret"),
        required=False,
        max_length=255,
        widget=forms.PasswordInput(attrs={"autocomplete": "new-password"}),
        help_text=_(
            "Webhook: signs each message (leave empty to generate a secret, shown once). "
            "DingTalk: the signing secret, SEC…. Leave it empty later to keep the current "
            "value."
        ),
    )
    to = forms.CharField(
        label=_("Recipients"),
        required=False,
        max_length=2_000,
        widget=forms.TextInput(attrs=PLAIN),
        help_text=_("E-mail addresses separated by spaces or commas."),
    )

    language = forms.ChoiceField(label=_("Message language"), required=False)

    class Meta:
        model = Channel
        fields = ("name", "enabled", "kind", "language")
        labels = {"name": _("Name"), "enabled": _("Enabled"), "kind": _("Type")}
        widgets = {"name": forms.TextInput(attrs=PLAIN)}

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.made_secret = ""
        ask(self, "kind", Channel.Kind.choices)
        language = self.fields["language"]
        assert isinstance(language, forms.ChoiceField)
        own = dict(settings.LANGUAGES)[settings.LANGUAGE_CODE]
        of_appliance = gettext("Appliance default (%(language)s)") % {"language": own}
        language.choices = [("", of_appliance), *settings.LANGUAGES]
        self.fields["to"].initial = " ".join(self.instance.addresses)

    def clean_url(self) -> str:
        url = str(self.cleaned_data["url"]).strip()
        if url:
            try:
                parsed(url)
            except TargetError as error:
                raise ValidationError(str(error)) from error
        return url

    def clean_to(self) -> list[str]:
        found = str(self.cleaned_data["to"]).replace(",", " ").split()
        if len(found) > ADDRESSES_MAX:
            raise ValidationError(gettext("At most %(most)d recipients.") % {"most": ADDRESSES_MAX})
        for each in found:
            validate_email(each)
        return found

    def clean(self) -> dict[str, Any]:
        cleaned: dict[str, Any] = super().clean() or {}
        if cleaned.get("kind") == Channel.Kind.EMAIL:
            if not cleaned.get("to") and "to" not in self.errors:
                self.add_error("to", gettext("Enter an e-mail address."))
        elif not cleaned.get("url") and not self.instance.url and "url" not in self.errors:
            self.add_error("url", gettext("Enter the address to send messages to."))
        return cleaned

    def save(self, commit: bool = True) -> Channel:
        channel = super().save(commit=False)
        is_mail = channel.kind == Channel.Kind.EMAIL
        channel.addresses = self.cleaned_data["to"] if is_mail else []
        if is_mail:
            channel.url = channel.secret = ""
        else:
            channel.url = self.cleaned_data["url"] or channel.url
            channel.secret = self.cleaned_data["secret"] or channel.secret
        if channel.kind == Channel.Kind.WEBHOOK and not channel.secret:
            channel.secret = self.made_secret = random_secrets.token_urlsafe(SECRET_BYTES)
        if commit:
            channel.save()
        return channel


class WindowForm(WindowModelForm):
    """A maintenance window, in the time zone of the person who enters it."""

    begins_once = forms.CharField(
        label=_("Starts"),
        required=False,
        widget=forms.TextInput(attrs={"type": "datetime-local"}),
    )
    begins_at = forms.CharField(
        label=_("Start time"), required=False, widget=forms.TextInput(attrs={"type": "time"})
    )
    weekdays = forms.TypedMultipleChoiceField(
        label=_("Days of the week"),
        required=False,
        coerce=int,
        widget=forms.CheckboxSelectMultiple,
        choices=[
            (0, _("Monday")),
            (1, _("Tuesday")),
            (2, _("Wednesday")),
            (3, _("Thursday")),
            (4, _("Friday")),
            (5, _("Saturday")),
            (6, _("Sunday")),
        ],
    )

    class Meta:
        model = Window
        fields = (
            *("name", "enabled", "kind", "weekdays", "minutes", "zone"),
            *("broker_pattern", "name_pattern"),
        )
        labels = {
            "name": _("Name"),
            "enabled": _("Enabled"),
            "kind": _("Repeats"),
            "minutes": _("Duration (minutes)"),
            "zone": _("Time zone"),
            "broker_pattern": _("Brokers"),
            "name_pattern": _("Groups, topics or brokers"),
        }
        help_texts = {"broker_pattern": PATTERN_HELP, "name_pattern": PATTERN_HELP}
        widgets = {
            "name": forms.TextInput(attrs=PLAIN),
            "zone": forms.TextInput(attrs={**PLAIN, "list": "zones", "data-own-zone": ""}),
            "broker_pattern": forms.TextInput(attrs=PLAIN),
            "name_pattern": forms.TextInput(attrs=PLAIN),
        }

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        ask(self, "kind", Window.Kind.choices)
        if self.instance.pk:
            once = self.instance.kind == Window.Kind.ONCE
            self.fields["begins_once" if once else "begins_at"].initial = self.instance.begins
        else:
            self.fields["minutes"].initial = 60

    def clean_zone(self) -> str:
        zone = str(self.cleaned_data["zone"]).strip()
        if zone not in zones():
            raise ValidationError(gettext("Enter a time zone such as Europe/Berlin or UTC."))
        return zone

    def clean_minutes(self) -> int:
        minutes = int(self.cleaned_data["minutes"])
        if not 1 <= minutes <= MINUTES_MAX:
            raise ValidationError(gettext("From 1 to %(most)d minutes.") % {"most": MINUTES_MAX})
        return minutes

    def clean(self) -> dict[str, Any]:
        cleaned: dict[str, Any] = super().clean() or {}
        once = cleaned.get("kind") == Window.Kind.ONCE
        name = "begins_once" if once else "begins_at"
        text = str(cleaned.get(name) or "").strip()
        try:
            if once:
                begins = datetime.fromisoformat(text).replace(tzinfo=None)
                if not 2000 < begins.year < 9000:
                    raise ValueError
                self.instance.begins = begins.isoformat(timespec="minutes")
            else:
                self.instance.begins = time.fromisoformat(text).strftime("%H:%M")
        except ValueError:
            self.add_error(name, gettext("Enter a start time."))
        if not once and not cleaned.get("weekdays"):
            self.add_error("weekdays", gettext("Choose at least one day."))
        return cleaned


class PreferencesForm(PreferencesModelForm):
    """The dead man's switch, and how long alerts are kept."""

    heartbeat_url = forms.CharField(
        label=_("Address"),
        required=False,
        max_length=2_000,
        widget=forms.TextInput(attrs={**PLAIN, "placeholder": "https://"}),
        help_text=_("This value isn't shown again. Leave it empty to keep the current value."),
    )
    off = forms.BooleanField(label=_("Turn off the heartbeat"), required=False)

    class Meta:
        model = Preferences
        fields = ("heartbeat_seconds", "keep_days")
        labels = {
            "heartbeat_seconds": _("Every (seconds)"),
            "keep_days": _("Keep resolved alerts for (days)"),
        }

    def clean_heartbeat_url(self) -> str:
        url = str(self.cleaned_data["heartbeat_url"]).strip()
        if url:
            try:
                parsed(url)
            except TargetError as error:
                raise ValidationError(str(error)) from error
        return url

    def clean_heartbeat_seconds(self) -> int:
        seconds = int(self.cleaned_data["heartbeat_seconds"])
        if not 10 <= seconds <= 86_400:
            raise ValidationError(gettext("From 10 to 86400 seconds."))
        return seconds

    def clean_keep_days(self) -> int:
        days = int(self.cleaned_data["keep_days"])
        if not 1 <= days <= 366:
            raise ValidationError(gettext("From 1 to 366 days."))
        return days

    def save(self, commit: bool = True) -> Preferences:
        kept = super().save(commit=False)
        if self.cleaned_data["off"]:
            kept.heartbeat_url = ""
        elif self.cleaned_data["heartbeat_url"]:
            kept.heartbeat_url = self.cleaned_data["heartbeat_url"]
        if commit:
            # Don't overwrite fields that the collector writes.
            kept.save(update_fields=["heartbeat_url", "heartbeat_seconds", "keep_days"])
        return kept
