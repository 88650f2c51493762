"""BodyColumns: the typed columns of a topic's JSON bodies, and why a body doesn't fit.

They are declared in a short form, by a JSON Schema or by an Avro schema:

    order_id = "string not null"
    total = "decimal(12,2)"
    tags = "string[]"
    customer = {name = "string", since = "date"}

Undeclared fields are left out. Columns have the names of the fields, with `_` in place of any
character other than a letter, digit or `_`. A reason never quotes a value, because values may
identify people.
"""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Context, Decimal, InvalidOperation
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from analytics.errors import LakeError
from analytics.lake.hiding import MASK

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

DECIMAL, LIST, STRUCT = "decimal", "list", "struct"
DEPTH_MAX = 16
_SHORT = re.compile(
    r"(?P<type>[a-z_]+)(\((?P<precision>\d+),\s*(?P<scale>\d+)\))?"
    r"(?P<list>\[\])?( (?P<must>not null))?"
)
_NUMBER = re.compile(r"-?\d{1,38}(\.\d{1,38})?")
_DATE = re.compile(r"\d{4}-\d\d-\d\d")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_INT, _LONG = 1 << 31, 1 << 63
_MICROS = pa.timestamp("us", tz="UTC")
_FOUND = {dict: "an object", list: "an array", str: "a string", bool: "a boolean"}
_COLUMN_CHARACTER = re.compile(r"[^A-Za-z0-9_]")


class MisfitError(Exception):
    """A body or one of its values doesn't have the declared type; the text is the reason."""


@dataclass(frozen=True, slots=True)
class Kind:
    """A type of values; `items` is the element type of a list, `fields` the members of a struct."""

    name: str
    precision: int = 0
    scale: int = 0
    items: Kind | None = None
    fields: tuple[Column, ...] = ()

    @property
    def type(self) -> pa.DataType:
        """The Arrow type."""
        if self.name == DECIMAL:
            return pa.decimal128(self.precision, self.scale)
        if self.items is not None:
            return pa.list_(self.items.type)
        if self.name == STRUCT:
            return pa.struct([(each.name, each.kind.type) for each in self.fields])
        return _SCALARS[self.name][0]

    @property
    def text(self) -> str:
        if self.name == DECIMAL:
            return f"decimal({self.precision},{self.scale})"
        return "object" if self.name == STRUCT else "array" if self.items is not None else self.name

    def read(self, value: Any, path: str) -> Any:
        """Convert a JSON value for Arrow.

        Raises:
            MisfitError: the value isn't of this type.
        """
        if value == MASK and self.name not in {"string", "json"}:
            return None  # a rule masks this field
        if self.name == STRUCT:
            if not isinstance(value, dict):
                raise self._misfit(value, path)
            return {each.name: each.read(value, path) for each in self.fields}
        if self.items is not None:
            if not isinstance(value, list):
                raise self._misfit(value, path)
            return [
                None if each is None else self.items.read(each, f"{path}[{number}]")
                for number, each in enumerate(value)
            ]
        try:
            found = (
                _decimal(value, self.precision, self.scale)
                if self.name == DECIMAL
                else _SCALARS[self.name][1](value)
            )
        except (ValueError, OverflowError, InvalidOperation):
            raise self._misfit(value, path) from None
        return found

    def _misfit(self, value: Any, path: str) -> MisfitError:
        return MisfitError(
            f"{path}: expected {self.text}, found {_FOUND.get(type(value), 'a number')}"
        )

    def stated(self) -> dict[str, Any]:
        """Return the type as JSON, which `kind_of` reads."""
        about: dict[str, Any] = {"type": self.name}
        if self.name == DECIMAL:
            about |= {"precision": self.precision, "scale": self.scale}
        if self.items is not None:
            about["items"] = self.items.stated()
        if self.name == STRUCT:
            about["fields"] = [each.stated() for each in self.fields]
        return about


@dataclass(frozen=True, slots=True)
class Column:
    """A column, and the field of the body that it is read from."""

    field: str
    kind: Kind
    is_required: bool = False
    description: str = ""

    @property
    def name(self) -> str:
        return _COLUMN_CHARACTER.sub("_", self.field)

    def read(self, body: Mapping[str, Any], path: str = "") -> Any:
        """Return the value of this column in an object.

        Raises:
            MisfitError: the value is missing or of another type.
        """
        place = f"{path}.{self.field}" if path else self.field
        value = body.get(self.field)
        if value is None:
            if self.is_required:
                raise MisfitError(f"{place}: required, but missing or null")
            return None
        return self.kind.read(value, place)

    def stated(self) -> dict[str, Any]:
        about = {"name": self.field, "required": self.is_required, "about": self.description}
        return about | self.kind.stated()


@dataclass(frozen=True, slots=True)
class BodyColumns:
    """The columns of a topic's bodies."""

    columns: tuple[Column, ...]

    @property
    def text(self) -> str:
        """The columns as JSON, which `of_text` reads."""
        return json.dumps([each.stated() for each in self.columns], sort_keys=True)

    @classmethod
    def of_text(cls, text: str) -> BodyColumns:
        return cls(tuple(map(_column_of, json.loads(text))))

    def read(self, bodies: Sequence[bytes]) -> tuple[list[pa.Array], list[str | None]]:
        """Read bodies into columns; a body that doesn't fit has nulls and the reason why."""
        rows: list[list[Any]] = []
        reasons: list[str | None] = []
        nothing = [None] * len(self.columns)
        for body in bodies:
            try:
                found = _object_in(body)
                rows.append([each.read(found) for each in self.columns])
                reasons.append(None)
            except MisfitError as misfit:
                rows.append(nothing)
                reasons.append(str(misfit))
        values = zip(*rows, strict=True) if rows else ([] for _ in self.columns)
        arrays = [
            pa.array(list(each), column.kind.type)
            for column, each in zip(self.columns, values, strict=True)
        ]
        return arrays, reasons


def columns_of(where: str, given: Any, *, is_short: bool = False) -> BodyColumns:
    """Return the columns that a JSON Schema, an Avro schema or the short form declares.

    Raises:
        LakeError: the schema isn't valid; `where` names it in the message.
    """
    try:
        if not isinstance(given, dict):
            raise ValueError("it isn't an object")
        if is_short:
            fields = _short_fields(given)
        elif given.get("type") == "record":
            fields = _AvroSchema().kind(given).fields
        else:
            fields = _JsonSchema(given).kind({"type": "object", **given}).fields
        _require_columns(fields)
    except (ValueError, TypeError, AttributeError, KeyError, RecursionError) as error:
        raise LakeError(f"{where} doesn't declare valid columns: {error}.") from error
    return BodyColumns(fields)


def _require_columns(columns: Sequence[Column]) -> None:
    """Raise ValueError if column names are ambiguous or a type is unknown."""
    if not columns:
        raise ValueError("there are no fields")
    names: dict[str, str] = {}
    for column in columns:
        folded = column.name.lower()
        if not folded or folded in names:
            other = names.get(folded, "")
            raise ValueError(f"the fields {other!r} and {column.field!r} have the same column")
        names[folded] = column.field
        kind = column.kind
        while kind.items is not None:
            kind = kind.items
        if kind.name == STRUCT:
            _require_columns(kind.fields)
        elif kind.name == DECIMAL and not 0 <= kind.scale <= kind.precision <= 38:
            raise ValueError(f"{column.field} is a decimal with more than 38 digits")
        elif kind.name not in _SCALARS and kind.name != DECIMAL:
            known = ", ".join([*_SCALARS, "decimal(P,S)"])
            raise ValueError(
                f"{column.field} has the unknown type {kind.name!r}; use one of {known}"
            )


def _short_fields(given: Mapping[str, Any]) -> tuple[Column, ...]:
    columns = []
    for field, said in given.items():
        if isinstance(said, dict):
            columns.append(Column(field, Kind(STRUCT, fields=_short_fields(said))))
            continue
        found = _SHORT.fullmatch(said) if isinstance(said, str) else None
        if found is None:
            raise ValueError(f'{field} must be a type such as "string" or "decimal(12,2) not null"')
        kind = Kind(found["type"], int(found["precision"] or 0), int(found["scale"] or 0))
        kind = Kind(LIST, items=kind) if found["list"] else kind
        columns.append(Column(field, kind, bool(found["must"])))
    return tuple(columns)


class _JsonSchema:
    """A JSON Schema: checks types, formats and `required`, and ignores other constraints."""

    def __init__(self, root: Mapping[str, Any]) -> None:
        self._root = root

    def kind(self, schema: Any, depth: int = 0) -> Kind:
        if not isinstance(schema, dict) or depth > DEPTH_MAX:
            return Kind("json")
        if isinstance(schema.get("$ref"), str):
            return self.kind(self._found(schema["$ref"]), depth + 1)
        choices = schema.get("anyOf") or schema.get("oneOf")
        if choices:
            left = [each for each in choices if each.get("type") != "null"]
            return self.kind(left[0], depth + 1) if len(left) == 1 else Kind("json")
        types = schema.get("type")
        named = [each for each in (types if isinstance(types, list) else [types]) if each != "null"]
        match named[0] if len(named) == 1 else None:
            case "string":
                return Kind(
                    {"date": "date", "date-time": "timestamp"}.get(
                        str(schema.get("format")), "string"
                    )
                )
            case "integer":
                return Kind("long")
            case "number":
                return Kind("double")
            case "boolean":
                return Kind("boolean")
            case "array":
                return Kind(LIST, items=self.kind(schema.get("items"), depth + 1))
            case "object" if schema.get("properties"):
                return Kind(STRUCT, fields=self._fields(schema, depth))
            case _:
                return Kind("json")

    def _fields(self, schema: Mapping[str, Any], depth: int) -> tuple[Column, ...]:
        required = schema.get("required", [])
        return tuple(
            Column(
                name,
                self.kind(each, depth + 1),
                name in required and not self._may_be_null(each),
                str(each.get("description", "")) if isinstance(each, dict) else "",
            )
            for name, each in schema["properties"].items()
        )

    def _may_be_null(self, schema: Any) -> bool:
        if not isinstance(schema, dict):
            return True
        types = schema.get("type")
        choices = schema.get("anyOf") or schema.get("oneOf") or []
        return "null" in (types if isinstance(types, list) else [types]) or any(
            each.get("type") == "null" for each in choices
        )

    def _found(self, reference: str) -> Any:
        if not reference.startswith("#/"):
            raise ValueError(f"{reference} refers to another file, which isn't supported")
        found: Any = self._root
        for step in reference[2:].split("/"):
            found = found[step.replace("~1", "/").replace("~0", "~")]
        return found


class _AvroSchema:
    """An Avro schema; bodies are plain JSON, without Avro's branch names in unions."""

    _PLAIN = {"int": "int", "long": "long", "float": "double", "double": "double"} | {
        "boolean": "boolean",
        "string": "string",
        "bytes": "string",
        "fixed": "string",
        "enum": "string",
        "map": "json",
        "null": "json",
    }
    _LOGICAL = {"date": "date", "timestamp-millis": "timestamp_ms"} | {
        "timestamp-micros": "timestamp_us",
        "local-timestamp-millis": "timestamp_ms",
        "local-timestamp-micros": "timestamp_us",
    }

    def __init__(self) -> None:
        self._named: dict[str, Kind] = {}

    def kind(self, schema: Any) -> Kind:
        if isinstance(schema, list):
            left = [each for each in schema if each != "null"]
            return self.kind(left[0]) if len(left) == 1 else Kind("json")
        if isinstance(schema, str):
            if schema not in self._PLAIN and schema not in self._named:
                raise ValueError(f"{schema!r} isn't an Avro type or a type that the schema defines")
            return self._named.get(schema) or Kind(self._PLAIN[schema])
        logical = str(schema.get("logicalType"))
        if logical == "decimal":
            return Kind(DECIMAL, int(schema["precision"]), int(schema.get("scale", 0)))
        if logical in self._LOGICAL:
            return Kind(self._LOGICAL[logical])
        if schema["type"] == "array":
            return Kind(LIST, items=self.kind(schema["items"]))
        if schema["type"] != "record":
            found = self.kind(schema["type"])
        else:
            # A recursive record becomes JSON.
            self._name(schema, Kind("json"))
            found = Kind(STRUCT, fields=tuple(map(self._field, schema["fields"])))
        self._name(schema, found)
        return found

    def _name(self, schema: Mapping[str, Any], kind: Kind) -> None:
        if "name" in schema:
            space = schema.get("namespace")
            self._named[schema["name"]] = kind
            self._named[f"{space}.{schema['name']}"] = kind

    def _field(self, field: Mapping[str, Any]) -> Column:
        may_be_null = isinstance(field["type"], list) and "null" in field["type"]
        is_required = not may_be_null and "default" not in field
        return Column(
            field["name"], self.kind(field["type"]), is_required, str(field.get("doc", ""))
        )


def _column_of(about: Mapping[str, Any]) -> Column:
    return Column(about["name"], kind_of(about), about["required"], about["about"])


def kind_of(about: Mapping[str, Any]) -> Kind:
    """Return the type that `Kind.stated` wrote."""
    items = kind_of(about["items"]) if "items" in about else None
    fields = tuple(map(_column_of, about.get("fields", ())))
    return Kind(about["type"], about.get("precision", 0), about.get("scale", 0), items, fields)


def _object_in(body: bytes) -> dict[str, Any]:
    """Return a body's JSON object; raise MisfitError if it isn't one."""
    try:
        found = json.loads(body.decode(), parse_float=Decimal, parse_constant=_refused)
    except (ValueError, RecursionError, InvalidOperation):
        raise MisfitError("the body isn't JSON") from None
    if not isinstance(found, dict):
        raise MisfitError(f"the body is {_FOUND.get(type(found), 'a value')}, not an object")
    return found


def _refused(_word: str) -> None:
    raise ValueError("NaN and Infinity aren't JSON")


def _string(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError
    value.encode()  # half a surrogate pair can't be encoded
    return value


def _boolean(value: Any) -> bool:
    if not isinstance(value, bool):
        raise ValueError
    return value


def _whole(bound: int) -> Callable[[Any], int]:
    def whole(value: Any) -> int:
        if isinstance(value, bool) or not isinstance(value, int | Decimal):
            raise ValueError
        # Check the bound first: int(1e999999999) would have as many digits.
        if not -bound <= value < bound or value != int(value):
            raise ValueError
        return int(value)

    return whole


def _double(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | Decimal):
        raise ValueError
    found = float(value)
    if not math.isfinite(found):
        raise ValueError
    return found


def _decimal(value: Any, precision: int, scale: int) -> Decimal:
    if isinstance(value, str) and not _NUMBER.fullmatch(value):
        raise ValueError
    if isinstance(value, bool) or not isinstance(value, int | Decimal | str):
        raise ValueError
    exact = Decimal(value)
    found = exact.quantize(Decimal(1).scaleb(-scale), context=Context(prec=precision))
    if found != exact:
        raise ValueError
    return found


def _date(value: Any) -> date:
    if isinstance(value, str) and _DATE.fullmatch(value):
        return date.fromisoformat(value)
    return _EPOCH.date() + timedelta(days=_whole(_INT)(value))


def _timestamp(value: Any) -> datetime:
    found = datetime.fromisoformat(_string(value))
    return found.replace(tzinfo=UTC) if found.tzinfo is None else found.astimezone(UTC)


def _timestamp_of(unit: str) -> Callable[[Any], datetime]:
    return lambda value: _EPOCH + timedelta(**{unit: _whole(_LONG)(value)})


def _json(value: Any) -> str:
    return _string(json.dumps(value, ensure_ascii=False, default=float))


_SCALARS: dict[str, tuple[pa.DataType, Callable[[Any], Any]]] = {
    "string": (pa.string(), _string),
    "int": (pa.int32(), _whole(_INT)),
    "long": (pa.int64(), _whole(_LONG)),
    "double": (pa.float64(), _double),
    "boolean": (pa.bool_(), _boolean),
    "date": (pa.date32(), _date),
    "timestamp": (_MICROS, _timestamp),
    "timestamp_ms": (_MICROS, _timestamp_of("milliseconds")),
    "timestamp_us": (_MICROS, _timestamp_of("microseconds")),
    "json": (pa.string(), _json),
}
