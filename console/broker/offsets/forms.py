"""The consumer offset forms."""

from __future__ import annotations

from datetime import UTC
from typing import TYPE_CHECKING, Any

from django import forms
from django.core.exceptions import ValidationError
from django.utils.translation import gettext_lazy as _

from broker_core.message import names
from console.broker.offsets.plan import MODE_LABELS, Mode, ResetRequest

if TYPE_CHECKING:
    from collections.abc import Iterable

    from console.lib.stored import BrokerQueue

OFFSET_MAX = 2**63 - 1
TIMESTAMP_MS_MAX = 253_402_300_799_000  # the end of the year 9999
ALL_QUEUES = ""


class SubjectForm(forms.Form):
    """A group and a topic."""

    group = forms.CharField(max_length=names.GROUP_LENGTH_MAX)
    topic = forms.CharField(max_length=names.RETRY_TOPIC_LENGTH_MAX)


class ResetForm(SubjectForm):
    """Where to move a group. Fields of other modes are ignored."""

    mode = forms.TypedChoiceField(
        label=_("Reset to"),
        choices=list(MODE_LABELS.items()),
        coerce=Mode,
        widget=forms.RadioSelect,
    )
    queue = forms.ChoiceField(label=_("Queues"), required=False)
    # In the reader's time zone; the page's script fills in the exact time.
    at = forms.DateTimeField(
        label=_("Time"),
        required=False,
        widget=forms.DateTimeInput(
            attrs={"type": "datetime-local", "step": "1", "data-timestamp-into": "timestamp_ms"}
        ),
    )
    timestamp_ms = forms.IntegerField(
        required=False, min_value=0, max_value=TIMESTAMP_MS_MAX, widget=forms.HiddenInput
    )
    offset = forms.IntegerField(
        label=_("Offset"), required=False, min_value=0, max_value=OFFSET_MAX
    )
    shift = forms.IntegerField(
        label=_("Messages"),
        required=False,
        min_value=-OFFSET_MAX,
        max_value=OFFSET_MAX,
        help_text=_("Use a negative number to go back and redeliver messages."),
    )

    source = forms.CharField(
        label=_("Group to copy from"), required=False, max_length=names.GROUP_LENGTH_MAX
    )

    def __init__(self, *args: Any, queues: Iterable[BrokerQueue], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._queues = {str(queue): queue for queue in queues}
        field = self.fields["queue"]
        assert isinstance(field, forms.ChoiceField)
        field.choices = [
            (ALL_QUEUES, _("All queues")),
            *(
                (key, f"{queue.broker_name} · {queue.queue_id}")
                for key, queue in self._queues.items()
            ),
        ]

    def clean(self) -> dict[str, Any]:
        cleaned = super().clean() or self.cleaned_data
        needed = {Mode.OFFSET: "offset", Mode.SHIFT: "shift"}.get(cleaned.get("mode", ""))
        if needed and needed not in self.errors and cleaned.get(needed) is None:
            self.add_error(needed, ValidationError(_("Enter a number.")))
        if cleaned.get("mode") == Mode.COPY and not cleaned.get("source"):
            self.add_error("source", ValidationError(_("Choose a group.")))
        if cleaned.get("mode") == Mode.TIMESTAMP and "at" not in self.errors:
            at = cleaned.get("at")
            if cleaned.get("timestamp_ms") is None and at is not None:
                cleaned["timestamp_ms"] = int(at.replace(tzinfo=UTC).timestamp() * 1000)
            if cleaned.get("timestamp_ms") is None:
                self.add_error("at", ValidationError(_("Enter a time.")))
        return cleaned

    def reset_request(self) -> ResetRequest:
        """Return the form's values; only after `is_valid`."""
        data = self.cleaned_data
        return ResetRequest(
            group=data["group"],
            topic=data["topic"],
            mode=data["mode"],
            timestamp_ms=data["timestamp_ms"],
            offset=data["offset"],
            shift=data["shift"],
            source=data["source"],
            queue=self._queues.get(data["queue"]),
        )
