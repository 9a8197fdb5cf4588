"""Frozen dataclasses as plain JSON values, and back.

    to_json(Setting(1410))          gives {"sm_mhz": 1410, "mem_mhz": None, "power_limit_w": None}
    from_json(Setting, document)    gives the setting, or raises InputError("sm_mhz: 'fast' is not a whole number")

    reader = JsonReader(source="plan.json", unknown_fields="skip")
    reader.read(Setting, document["ranks"][3], "ranks[3]")      raises InputError("plan.json: ranks[3].sm_mhz: …")

A dataclass is an object with one member per field, in the order of the fields. Tuples are lists, enums their values,
flags lists of their names in lower case, and times ISO 8601 texts. Nested dataclasses, `X | None`, `tuple[X, ...]`,
`Mapping[str, X]` and generic dataclasses such as `Trial[Setting]` are read by their type hints. Values that a format
puts side by side are merged and picked apart by the caller: `to_json(trial.choice) | to_json(trial.cost)`, and
`JsonReader(unknown_fields="skip")` reads each from the same object.

This is standard-library code rather than msgspec: all documents are small, so its speed would not be noticed, while the
errors have to name the place in our words and `import wattune` has to stay cheap. One more dependency with compiled
parts would replace about a hundred lines.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields, is_dataclass
from datetime import datetime
from enum import Enum, Flag
from functools import cache, reduce
from operator import or_
from types import NoneType, UnionType
from typing import Any, Literal, NoReturn, TypeVar, Union, get_args, get_origin, get_type_hints

from wattune.core.bounds import is_finite, too_large
from wattune.core.errors import InputError

T = TypeVar("T")


def to_json(value: object) -> Any:
    """Convert a value to what `json.dumps` takes; TypeError for a value that has no JSON form."""
    match value:
        case Flag():
            return list(_words(value))
        case Enum():
            return value.value
        case None | bool() | int() | float() | str():
            return value
        case datetime():
            return value.isoformat()
        case Mapping():
            return {str(key): to_json(member) for key, member in value.items()}
        case list() | tuple():
            return [to_json(member) for member in value]
    if is_dataclass(value):
        return {field.name: to_json(getattr(value, field.name)) for field in fields(value)}
    raise TypeError(f"a {type(value).__name__} has no JSON form")


def from_json(kind: type[T], document: object) -> T:
    """Convert what `to_json` returned back to a value; InputError for unknown, missing or wrong fields."""
    return JsonReader().read(kind, document)


@dataclass(frozen=True, slots=True, kw_only=True)
class JsonReader:
    """Converts JSON values to dataclasses, as strictly as the format asks for."""

    source: str = ""
    """The file, or its line, that errors name first."""
    hint: str = "correct that value"
    unknown_fields: Literal["refuse", "skip"] = "refuse"
    missing_fields: Literal["refuse", "default"] = "refuse"
    """True if a field that has a default may be left out."""

    def read(self, kind: type[T], value: object, where: str = "") -> T:
        """Convert a value that is at `where` in the document, such as `runs[3].setting`; InputError if it is wrong."""
        result: T = self._read(kind, value, where)
        return result

    def fail(self, where: str, problem: str) -> NoReturn:
        """Raise the InputError that names the source and the place."""
        raise InputError(": ".join(filter(None, (self.source, where, problem))), hint=self.hint)

    def _read(self, kind: Any, value: object, where: str) -> Any:
        origin, arguments = get_origin(kind) or kind, get_args(kind)
        if kind is Any:
            return value
        if origin in (Union, UnionType):
            if value is None and NoneType in arguments:
                return None
            (kind,) = (argument for argument in arguments if argument is not NoneType)
            return self._read(kind, value, where)
        if is_dataclass(origin):
            return self._object(origin, arguments, value, where)
        if origin is tuple:
            return self._tuple(arguments[0], value, where)
        if origin in (Mapping, dict):
            return {
                key: self._read(arguments[1], member, _at(where, key)) for key, member in self._members(value, where)
            }
        return self._scalar(kind, value, where)

    def _object(self, kind: Any, arguments: tuple[Any, ...], value: object, where: str) -> Any:
        types, members = _field_types(kind, arguments), dict(self._members(value, where))
        unknown = [name for name in members if name not in types]
        if unknown and self.unknown_fields == "refuse":
            self.fail(_at(where, unknown[0]), f"there is no such field; the fields are {', '.join(types)}")
        for field in fields(kind):
            has_default = field.default is not MISSING or field.default_factory is not MISSING
            if field.name not in members and not (has_default and self.missing_fields == "default"):
                self.fail(_at(where, field.name), "is missing")
        known = {name: self._read(types[name], members[name], _at(where, name)) for name in types if name in members}
        try:
            return kind(**known)
        except (ValueError, InputError) as error:
            self.fail(where, str(error))

    def _members(self, value: object, where: str) -> list[tuple[str, object]]:
        if not isinstance(value, Mapping):
            self.fail(where, f"{value!r} is not an object")
        return list(value.items())

    def _tuple(self, kind: Any, value: object, where: str) -> tuple[Any, ...]:
        if not isinstance(value, list | tuple):
            self.fail(where, f"{value!r} is not a list")
        return tuple(self._read(kind, member, f"{where}[{place}]") for place, member in enumerate(value))

    def _scalar(self, kind: Any, value: object, where: str) -> Any:
        if kind is float or kind is int:
            return self._number(kind, value, where)
        if issubclass(kind, Flag):
            return self._flag(kind, value, where)
        if issubclass(kind, Enum):
            choices = [member.value for member in kind]
            if value not in choices:
                self.fail(where, f"{value!r} is none of {', '.join(map(str, choices))}")
            return kind(value)
        if kind is datetime:
            try:
                return datetime.fromisoformat(value if isinstance(value, str) else "")
            except ValueError:
                self.fail(where, f"{value!r} is not a time such as 2025-03-01T12:00:00+00:00")
        if not isinstance(value, kind):
            self.fail(where, f"{value!r} is not {'true or false' if kind is bool else 'a text'}")
        return value

    def _number(self, kind: type[int] | type[float], value: object, where: str) -> float:
        if isinstance(value, bool) or not isinstance(value, int | float) or not is_finite(value):
            self.fail(where, f"{value!r} is not a finite number")
        if kind is int and value != int(value):
            self.fail(where, f"{value!r} is not a whole number")
        problem = too_large(where.rpartition(".")[2].partition("[")[0], value)
        if problem is not None:
            self.fail(where, problem)
        return kind(value)

    def _flag(self, kind: type[Flag], value: object, where: str) -> Flag:
        members = {_words(member)[0]: member for member in kind}
        if not isinstance(value, list) or not all(isinstance(word, str) and word in members for word in value):
            self.fail(where, f"{value!r} is not a list of {', '.join(members)}")
        return reduce(or_, (members[word] for word in value), kind(0))


@cache
def _field_types(kind: Any, arguments: tuple[Any, ...]) -> dict[str, Any]:
    hints = get_type_hints(kind)
    parameters = dict(zip(getattr(kind, "__parameters__", ()), arguments, strict=True)) if arguments else {}
    return {field.name: parameters.get(hints[field.name], hints[field.name]) for field in fields(kind)}


def _words(flags: Flag) -> tuple[str, ...]:
    return tuple(member.name.lower().replace("_", " ") for member in flags if member.name)


def _at(where: str, name: str) -> str:
    return f"{where}.{name}" if where else name
