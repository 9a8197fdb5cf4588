"""A catalogue file: every number carries its source, and errors name the file and the key."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from math import inf, isfinite
from pathlib import Path
from typing import Any

from wattune.core.errors import InputError

MARKS = ("measured", "published", "estimated")


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
        except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
            raise InputError(f"cannot read {file}: {error}", hint="a catalogue file is TOML") from None

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

    def number(self, key: str, *, above: float = 0.0, most: float = inf) -> float:
        """Return a sourced number, larger than `above` and no larger than `most`."""
        value = self._finite(key)
        if not above < value <= most:
            limit = "" if most == inf else f" and at most {most:g}"
            raise self.wrong(key, f"is more than {above:g}{limit}, not {value:g}")
        return value

    def number_from(self, key: str, least: float) -> float:
        """Return a sourced number, no smaller than `least`."""
        value = self._finite(key)
        if value < least:
            raise self.wrong(key, f"is at least {least:g}, not {value:g}")
        return value

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

    def _finite(self, key: str) -> float:
        value = self.sourced(key).value
        if isinstance(value, bool) or not isinstance(value, int | float) or not isfinite(value):
            raise self.wrong(key, f"is a number, not {value!r}")
        return float(value)

    def _find(self, key: str) -> Any:
        place: Any = self.document
        for part in key.split("."):
            if not isinstance(place, dict) or part not in place:
                return None
            place = place[part]
        return place


def _leaves(table: Mapping[str, Any], prefix: str) -> list[str]:
    found = []
    for name, value in table.items():
        if isinstance(value, dict):
            key = f"{prefix}{name}"
            found += [key] if "value" in value else _leaves(value, f"{key}.")
    return found
