"""Request bodies: JSON objects whose fields are those of the console's forms."""

from __future__ import annotations

import json
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, TypeVar

from django import forms
from django.http import QueryDict
from django.utils.translation import gettext as _

from console.accounts.rights import rights_on
from console.api.problems import ProblemError, of_form

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from django.http import HttpRequest

HIDDEN = frozenset({"seen", "version"})
"""Form fields that detect concurrent edits on a page."""

Form = TypeVar("Form", bound="forms.BaseForm")


def json_object(request: HttpRequest, allowed: Collection[str]) -> dict[str, Any]:
    """Return the body's JSON object.

    Raises:
        ProblemError: the body isn't a JSON object, or it has a field that isn't in `allowed`.
    """
    try:
        found = json.loads(request.body or b"{}")
        # Reject text that can't be encoded as UTF-8, because it can't be stored.
        json.dumps(found, ensure_ascii=False, allow_nan=False).encode()
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise ProblemError(HTTPStatus.BAD_REQUEST, _("The request body must be a JSON object."))
    if unknown := sorted(set(found) - set(allowed)):
        errors = [{"field": each, "problem": _("Unknown field.")} for each in unknown]
        detail = _("Unknown field %(name)s. Known fields: %(names)s.") % {
            "name": ", ".join(unknown),
            "names": ", ".join(allowed),
        }
        raise ProblemError(HTTPStatus.UNPROCESSABLE_ENTITY, detail, errors=errors)
    return found


def may_choose_channels(
    request: HttpRequest, asked: Mapping[str, Any], present: Sequence[int] = ()
) -> bool:
    """Return whether a program may choose the channels that a schedule sends its results to.

    Channels belong to administrators and to the alerts area.

    Raises:
        PermissionDenied: the body changes the channels, and the program lacks the right.
    """
    rights = rights_on(request)
    if "channels" in asked and asked["channels"] != list(present):
        rights.require_administrator("alerts:write")
    return rights.administers("alerts:write")


def valid_form(
    request: HttpRequest,
    make: Callable[[QueryDict | None], Form],
    asked: Mapping[str, Any] | None = None,
) -> Form:
    """Return the valid form that `make` builds from the body.

    Missing fields keep the form's initial values. Pass `asked` when only part of the body belongs
    to the form.

    Raises:
        ProblemError: the form is invalid.
    """
    blank = make(None)
    names = [name for name in blank.fields if name not in HIDDEN]
    form = make(data_of(blank, json_object(request, names) if asked is None else asked))
    try:
        is_valid = form.is_valid()
    except OverflowError as error:
        # Primary keys have 64 bits, and the form would look a larger number up in the database.
        detail = _("A number is larger than 64 bits.")
        raise ProblemError(HTTPStatus.UNPROCESSABLE_ENTITY, detail) from error
    if not is_valid:
        raise of_form(form)
    return form


def data_of(blank: forms.BaseForm, asked: Mapping[str, Any]) -> QueryDict:
    """Return the form data that a browser would send for these values."""
    data = QueryDict(mutable=True)
    for name, field in blank.fields.items():
        key = blank.add_prefix(name)
        begins = blank.get_initial_for_field(field, name)
        if begins is None:
            begins = first_choice(field)
        value = asked.get(name, begins)
        if value is None or value is False:
            continue
        if isinstance(field, forms.MultipleChoiceField | forms.ModelMultipleChoiceField):
            several = value if isinstance(value, list | tuple) else [value]
            data.setlist(key, [text_of(each) for each in several])
        else:
            data[key] = text_of(value)
    return data


def first_choice(field: forms.Field) -> object:
    """Return the value a browser sends for an unchanged select field, or None for other fields."""
    is_list = isinstance(field, forms.ChoiceField) and type(field.widget) is forms.Select
    if not is_list or not field.required or isinstance(field, forms.ModelChoiceField):
        return None
    return next((value for value, _label in getattr(field, "choices", ())), None)


def text_of(value: Any) -> str:
    if hasattr(value, "pk"):
        return str(value.pk)
    if value is True:
        return "on"
    if isinstance(value, list | tuple):
        return "\n".join(str(each) for each in value)
    return json.dumps(value) if isinstance(value, dict) else str(value)


def schema_of(form: type[Any]) -> dict[str, Any]:
    """Return the JSON schema of a form's fields."""
    fields = {name: each for name, each in form.base_fields.items() if name not in HIDDEN}
    return {
        "type": "object",
        "additionalProperties": False,
        "properties": {name: schema_of_field(each) for name, each in fields.items()},
    }


def schema_of_field(field: forms.Field) -> dict[str, Any]:
    """Return the JSON schema of a field, described by its label and help text."""
    described = " ".join(str(each) for each in (field.label, field.help_text) if each)
    found: dict[str, Any] = {"description": described} if described else {}
    if field.initial is not None and isinstance(field.initial, str | int | bool):
        found["default"] = field.initial
    match field:
        case forms.MultipleChoiceField() | forms.ModelMultipleChoiceField():
            found |= {"type": "array", "items": {"type": ["string", "integer"]}}
        case forms.BooleanField():
            found |= {"type": "boolean"}
        case forms.IntegerField():
            found |= {"type": ["integer", "null"]}
            limits = {"minimum": field.min_value, "maximum": field.max_value}
            found |= {name: each for name, each in limits.items() if each is not None}
        case forms.FloatField() | forms.DecimalField():
            found |= {"type": ["number", "null"]}
        case forms.ModelChoiceField():
            found |= {"type": ["integer", "null"]}
        case forms.ChoiceField():
            found |= {"type": ["string", "integer", "null"]}
        case _other:
            found |= {"type": ["string", "null"]}
            if isinstance(field, forms.CharField) and field.max_length is not None:
                found["maxLength"] = field.max_length
    return found
