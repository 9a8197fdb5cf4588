"""A catalogue file: every number carries its source, and errors name the file and the key."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterable, Mapping
from copy import deepcopy
from dataclasses import dataclass
from functools import reduce
from math import inf
from operator import getitem
from pathlib import Path
from typing import Any, TypeVar

from wattune.core.bounds import is_finite
from wattune.core.codec import JsonReader
from wattune.core.errors import InputError
from wattune.core.trust import Trust, TrustLevel

T = TypeVar("T")

MARKS = ("measured", "published", "estimated")
SMALLEST, LARGEST = 1e-9, 1e15
"""Bounds of every number, far outside of any GPU: beyond them computations overflow."""


@dataclass(frozen=True, slots=True)
class Sourced:
    """A value of the catalogue with its mark (how well it is known) and source."""

    key: str
    value: Any
    mark: str
    source: str


@dataclass(frozen=True, slots=True)
class Sheet:
    """The content of one file."""

    file: str
    document: Mapping[str, Any]

    @classmethod
    def read(cls, file: Path) -> Sheet:
        try:
            return cls(str(file), tomllib.loads(file.read_text(encoding="utf-8")))
        except (OSError, ValueError, RecursionError) as error:  # ValueError: not UTF-8, not TOML, or too long a number
            reason = " ".join(str(error).split())
            raise InputError(f"cannot read {file}: {reason}", hint="a catalogue file is TOML") from None

    def wrong(self, key: str, problem: str) -> InputError:
        return InputError(
            f"{self.file}: {key} {problem}", hint="see docs/explanation/physics.md for what belongs there"
        )

    def has(self, key: str) -> bool:
        return self._find(key) is not None

    def text(self, key: str) -> str:
        value = self._find(key)
        if not isinstance(value, str) or not value:
            raise self.wrong(key, "is missing or not a text")
        return value

    def texts(self, key: str) -> tuple[str, ...]:
        """Return a list of texts; empty where the key is missing."""
        value = self._find(key) or []
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            raise self.wrong(key, "is not a list of texts")
        return tuple(value)

    def tables(self, key: str) -> list[Mapping[str, Any]]:
        value = self._find(key)
        if not isinstance(value, list) or not value or not all(isinstance(item, dict) for item in value):
            raise self.wrong(key, "is not a list of tables")
        return value

    def flag(self, key: str) -> bool:
        value = self.sourced(key).value
        if not isinstance(value, bool):
            raise self.wrong(key, f"is true or false, not {value!r}")
        return value

    def number(self, key: str, *, above: float = 0.0, least: float | None = None, most: float = inf) -> float:
        """Return a sourced number above `above`, or from `least` on where that is given, and at most `most`."""
        value = self.sourced(key).value
        if isinstance(value, bool) or not isinstance(value, int | float) or not is_finite(value):
            raise self.wrong(key, f"is a number, not {value!r}")
        if not (value > above if least is None else value >= least) or value > most:
            bound = f"more than {above:g}" if least is None else f"at least {least:g}"
            limit = "" if most == inf else f" and at most {most:g}"
            raise self.wrong(key, f"is {bound}{limit}, not {value:g}")
        if value and not SMALLEST <= abs(value) <= LARGEST:
            raise self.wrong(key, f"is of no GPU: {value:g} is not between {SMALLEST:g} and {LARGEST:g}")
        return float(value)

    def number_or(self, key: str, default: T, *, least: float | None = None, most: float = inf) -> float | T:
        """Return a sourced number, or the default where the key is missing."""
        return self.number(key, least=least, most=most) if self.has(key) else default

    def whole(self, key: str) -> int:
        value = self.number(key)
        if value != int(value):
            raise self.wrong(key, f"is a whole number, not {value:g}")
        return int(value)

    def sourced(self, key: str) -> Sourced:
        entry = self._find(key)
        if not isinstance(entry, dict) or "value" not in entry:
            raise self.wrong(key, 'is missing or lacks the form { value = …, mark = "…", source = "…" }')
        return self.marked(key, entry, entry["value"])

    def marked(self, key: str, entry: Mapping[str, Any], value: Any) -> Sourced:
        """Combine `value` with the mark and source of `entry`."""
        mark, source = entry.get("mark"), entry.get("source")
        if mark not in MARKS:
            raise self.wrong(key, f"has the mark {mark!r}; it is one of {', '.join(MARKS)}")
        if not isinstance(source, str) or not source:
            raise self.wrong(key, "does not name its source")
        return Sourced(key, value, mark, source)

    def all_sourced(self) -> tuple[Sourced, ...]:
        """Return every sourced value, in the order of the file."""
        return tuple(self.sourced(key) for key in _leaves(self.document, ""))

    def _find(self, key: str) -> Any:
        place: Any = self.document
        for part in key.split("."):
            if not isinstance(place, dict) or part not in place:
                return None
            place = place[part]
        return place

    def replaced(self, values: Iterable[Sourced], *, file: Path) -> Sheet:
        """Return the sheet of another file, named after that file, with some values replaced."""
        made = deepcopy(dict(self.document)) | {"key": file.stem}
        for of_the_other in ("aliases", "trust"):
            made.pop(of_the_other, None)
        for value in values:
            *sections, last = value.key.split(".")
            place = reduce(getitem, sections, made)
            place[last] = {"value": value.value, "mark": value.mark, "source": value.source}
        return Sheet(str(file), made)

    @property
    def trust(self) -> Trust:
        """How far the GPU can be trusted; unknown where the file does not say it, or in a text alone."""
        entry = self._find("trust")
        if not isinstance(entry, dict):
            text = entry if isinstance(entry, str) else None
            return Trust(gpu=self.text("name"), level=TrustLevel.UNKNOWN, text=text)
        return JsonReader(source=f"{self.file}: trust", missing_fields="default").read(
            Trust, {"gpu": self.text("name"), **entry}
        )

    @property
    def toml(self) -> str:
        """The file in the layout of the catalogue: plain values, then lists of tables, then sections."""
        lines = [_MARKS_COMMENT, *_entries(self.document)]
        for name, value in self.document.items():
            for table in value if _is_tables(value) else ():
                lines += ["", f"[[{name}]]", *(f"{key} = {_inline(item)}" for key, item in table.items())]
        return "\n".join([*lines, *_sections(self.document, "")]) + "\n"


def _leaves(table: Mapping[str, Any], prefix: str) -> list[str]:
    found = []
    for name, value in table.items():
        if isinstance(value, dict):
            key = f"{prefix}{name}"
            found += [key] if "value" in value else _leaves(value, f"{key}.")
    return found


_MARKS_COMMENT = (
    "# mark: measured (by others, or by fit to a measured sweep), published (by the maker), estimated (by us)."
)


def _sections(table: Mapping[str, Any], prefix: str) -> list[str]:
    lines: list[str] = []
    for name, section in table.items():
        if _is_section(section):
            entries = _entries(section)
            lines += ["", f"[{prefix}{name}]", *entries] if entries else []
            lines += _sections(section, f"{prefix}{name}.")
    return lines


def _entries(table: Mapping[str, Any]) -> list[str]:
    plain = {name: value for name, value in table.items() if not _is_section(value) and not _is_tables(value)}
    return [f"{name} = {_inline(value)}" for name, value in plain.items()]


def _is_section(value: Any) -> bool:
    """Return whether a value is a section, such as unit.fp32, and not one sourced number."""
    return isinstance(value, Mapping) and "mark" not in value


def _is_tables(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and isinstance(value[0], Mapping)


def _inline(value: Any) -> str:
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{name} = {_inline(item)}" for name, item in value.items()) + " }"
    # Texts, numbers and lists of them are written as in JSON, but that JSON allows the DEL character.
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
