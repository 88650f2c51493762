"""Forms to start a run or edit a schedule, with fields from the report descriptions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from celery.schedules import ParseException, crontab_parser
from django import forms
from django.utils.translation import gettext, gettext_lazy, gettext_lazy as _
from django_celery_beat.models import PeriodicTask

from console.data.reports import topics
from console.data.reports.schedules import UTC_NAME
from console.lib.zones import ZoneSelect, zone_names
from console.observe.alerts.models import Channel

if TYPE_CHECKING:
    from collections.abc import Mapping

    from console.data.reports.catalog import Parameter, Report

EVERY_MAX = 999
# The fields of a cron expression: name, number of values, lowest value.
CRON_FIELDS = (
    (_("minute"), 60, 0),
    (_("hour"), 24, 0),
    (_("day of month"), 31, 1),
    (_("month"), 12, 1),
    (_("day of week"), 7, 0),
)
CRON_CHARS_MAX = 200
NAME_CHARS_MAX = 200


class ParametersForm(forms.Form):
    """The parameters of one report, all optional."""

    def __init__(
        self,
        report: Report,
        data: Mapping[str, Any] | None = None,
        *,
        initial: Mapping[str, Any] | None = None,
    ) -> None:
        """`initial` contains the parameters of an earlier run, without blank ones."""
        if initial is not None:
            initial = {each.name: initial.get(each.name, "") for each in report.parameters}
        super().__init__(data, initial=initial, prefix=report.name)
        self.report = report
        for parameter in report.parameters:
            self.fields[parameter.name] = field_of(parameter)

    def clean(self) -> dict[str, Any]:
        cleaned: dict[str, Any] = super().clean() or {}
        for parameter in self.report.parameters:
            topic = str(cleaned.get(parameter.name) or "").strip()
            if parameter.type == "topic" and topic and not topics.exists(topic):
                self.add_error(
                    parameter.name,
                    _("The topic “%(topic)s” doesn't exist. Check its spelling.")
                    % {"topic": topic},
                )
        return cleaned

    def parameters(self) -> dict[str, Any]:
        """Return the run's parameters, without blank ones."""
        found = {}
        for parameter in self.report.parameters:
            value = self.cleaned_data[parameter.name]
            if isinstance(value, str):
                value = value.strip()
            if value not in (None, ""):
                found[parameter.name] = int(value) if parameter.type == "integer" else value
        return found


def field_of(parameter: Parameter) -> forms.Field:
    """Return the form field of a parameter."""
    common: dict[str, Any] = {
        "label": gettext_lazy(parameter.label),
        "help_text": gettext_lazy(parameter.help) if parameter.help else "",
        "initial": "" if parameter.default is None else parameter.default,
        "required": False,
    }
    if parameter.choices:
        choices = [
            ("" if choice.value is None else str(choice.value), gettext_lazy(choice.label))
            for choice in parameter.choices
        ]
        return forms.ChoiceField(choices=choices, **common)
    if parameter.type == "integer":
        return forms.IntegerField(
            min_value=parameter.minimum, max_value=parameter.maximum, **common
        )
    attributes = {"autocomplete": "off"}
    if parameter.type == "topic":
        attributes["list"] = "report-topics"
    widget = forms.TextInput(attrs=attributes)
    return forms.CharField(
        min_length=parameter.minimum, max_length=parameter.maximum, widget=widget, **common
    )


class StartForm(forms.Form):
    """The report to run; a ParametersForm has its parameters."""

    report = forms.ChoiceField(label=_("Report"))

    def __init__(
        self,
        reports: Mapping[str, Report],
        data: Mapping[str, Any] | None = None,
        *,
        chosen: str = "",
    ) -> None:
        super().__init__(data, initial={"report": chosen} if chosen in reports else None)
        field = self.fields["report"]
        assert isinstance(field, forms.ChoiceField)
        field.choices = [(name, gettext_lazy(each.title)) for name, each in reports.items()]


class ScheduleForm(forms.Form):
    """When a schedule runs."""

    KINDS = [("interval", _("At an interval")), ("cron", _("At set times"))]
    PERIODS = [("minutes", _("minutes")), ("hours", _("hours")), ("days", _("days"))]

    name = forms.CharField(label=_("Name"), max_length=NAME_CHARS_MAX, required=False)
    enabled = forms.BooleanField(label=_("Enabled"), required=False)
    catch_up = forms.BooleanField(
        label=_("Catch up: if scheduled times were missed, run once afterwards"),
        required=False,
    )
    kind = forms.ChoiceField(label=_("Repeats"), choices=KINDS)
    every = forms.IntegerField(
        label=_("Every"), min_value=1, max_value=EVERY_MAX, initial=1, required=False
    )
    period = forms.ChoiceField(label=_("Unit"), choices=PERIODS, initial="hours", required=False)
    cron = forms.CharField(
        label=_("Times (cron)"),
        required=False,
        max_length=CRON_CHARS_MAX,
        help_text=_(
            "Minute, hour, day of month, month, day of week. For example, “0 * * * *” is every "
            "hour and “30 6 * * 1-5” is 06:30 on weekdays."
        ),
        widget=forms.TextInput(attrs={"spellcheck": "false", "autocomplete": "off"}),
    )

    timezone = forms.ChoiceField(
        label=_("Time zone"), required=False, widget=ZoneSelect(attrs={"data-zone-select": ""})
    )

    channels = forms.TypedMultipleChoiceField(
        label=_("Send results to"),
        coerce=int,
        required=False,
        widget=forms.CheckboxSelectMultiple,
        help_text=_("Includes the first rows and the chart. Everyone in the channel can see them."),
    )

    def __init__(
        self,
        data: Mapping[str, Any] | None = None,
        *,
        initial: Mapping[str, Any],
        schedule_id: int | None = None,
        may_notify: bool = False,
    ) -> None:
        """Build the form.

        Args:
            schedule_id: the edited schedule, or None for a new one.
            may_notify: whether this person may send results to channels, which administrators see.
        """
        super().__init__(data, initial=dict(initial))
        if may_notify:
            channels = self.fields["channels"]
            assert isinstance(channels, forms.ChoiceField)
            channels.choices = list(Channel.objects.values_list("pk", "name"))
        else:
            del self.fields["channels"]
        self._schedule_id = schedule_id
        zone = self.fields["timezone"]
        assert isinstance(zone, forms.ChoiceField)
        # The schedule's time zone may have been renamed since.
        names = dict.fromkeys([*zone_names(), str(initial.get("timezone") or UTC_NAME)])
        zone.choices = [(name, name.replace("_", " ")) for name in names]
        if schedule_id is None:
            zone.widget.attrs["data-own-zone"] = ""

    def clean_name(self) -> str:
        name: str = self.cleaned_data["name"].strip()
        others = PeriodicTask.objects.filter(name=name).exclude(pk=self._schedule_id)
        if name and others.exists():
            raise forms.ValidationError(gettext("Another schedule already has this name."))
        if not name and self._schedule_id is None:
            raise forms.ValidationError(gettext("Enter a name."))
        return name

    def clean_timezone(self) -> str:
        return self.cleaned_data["timezone"] or str(self.initial.get("timezone", UTC_NAME))

    def clean(self) -> dict[str, Any]:
        cleaned: dict[str, Any] = super().clean() or {}
        if cleaned.get("kind") == "interval":
            if not cleaned.get("every") and "every" not in self.errors:
                self.add_error("every", _("Enter an interval."))
            if not cleaned.get("period"):
                self.add_error("period", _("Choose a unit."))
        elif cleaned.get("kind") == "cron" and "cron" not in self.errors:
            try:
                cleaned["cron"] = checked_cron(cleaned.get("cron") or "")
            except ValueError as error:
                self.add_error("cron", str(error))
        return cleaned


def checked_cron(text: str) -> str:
    """Return five cron fields separated by single spaces.

    Raises:
        ValueError: a field is invalid; the text says which.
    """
    fields = text.split()
    if len(fields) != len(CRON_FIELDS):
        raise ValueError(
            gettext("Enter five fields: minute, hour, day of month, month, day of week.")
        )
    for field, (name, count, first) in zip(fields, CRON_FIELDS, strict=True):
        try:
            crontab_parser(count, first).parse(field)
        except (ParseException, ValueError) as error:
            raise ValueError(
                gettext("“%(value)s” isn't a valid %(field)s.") % {"value": field, "field": name}
            ) from error
    return " ".join(fields)
