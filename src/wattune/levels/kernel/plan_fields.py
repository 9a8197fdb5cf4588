"""The parts of a JSON document, each of which knows where it stands, so that an error can name it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from wattune.core.errors import PlanError


@dataclass(frozen=True, slots=True)
class Field:
    """A value of a document and the words that lead to it."""

    where: str
    value: Any

    def wrong(self, problem: str) -> PlanError:
        """An error about this part."""
        return PlanError(f"{self.where}: {problem}", hint="make the plan anew, or mend that part of the file")

    def get(self, name: str) -> Field:
        """The part of that name."""
        if not isinstance(self.value, dict):
            raise self.wrong("is not an object")
        if name not in self.value:
            raise self.wrong(f"has no {name!r}")
        return Field(f"{self.where}, {name}", self.value[name])

    def items(self) -> list[Field]:
        """The parts of a list, counted from 0."""
        if not isinstance(self.value, list):
            raise self.wrong("is not a list")
        return [Field(f"{self.where} {number}", value) for number, value in enumerate(self.value)]

    def fields(self) -> dict[str, Field]:
        """The parts of an object by name."""
        if not isinstance(self.value, dict):
            raise self.wrong("is not an object")
        return {name: Field(f"{self.where}, {name}", value) for name, value in self.value.items()}

    def text(self) -> str:
        """The value, which is a text."""
        if not isinstance(self.value, str):
            raise self.wrong(f"{_shown(self.value)} is not a text")
        return self.value

    def truth(self) -> bool:
        """The value, which is true or false."""
        if not isinstance(self.value, bool):
            raise self.wrong(f"{_shown(self.value)} is neither true nor false")
        return self.value

    def number(self, *, least: float | None = None) -> float:
        """The value, which is a finite number above 0, or at least `least`."""
        value = self.value
        known = isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= 1e300
        if not known or (value <= 0 if least is None else value < least):
            wanted = "above 0" if least is None else f"from {least:g}"
            raise self.wrong(f"{_shown(value)} is not a finite number {wanted}")
        return float(value)

    def number_or_none(self) -> float | None:
        """The same, or None where it is null."""
        return None if self.value is None else self.number()

    def whole(self, *, most: int) -> int:
        """The value, which is a whole number from 1 to `most`."""
        if isinstance(self.value, bool) or not isinstance(self.value, int) or not 1 <= self.value <= most:
            raise self.wrong(f"{_shown(self.value)} is not a whole number from 1 to {most}")
        return self.value

    def whole_or_none(self) -> int | None:
        """A clock, or None where it is null."""
        return None if self.value is None else self.whole(most=1_000_000)


def document_of(text: str, *, file: str) -> Field:
    """The document that a JSON text holds."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise PlanError(
            f"{file} is not JSON: {error}", hint="make one with `wattune pipeline plan --out FILE`"
        ) from None
    if not isinstance(value, dict):
        raise PlanError(f"{file} is not a JSON object", hint="make one with `wattune pipeline plan --out FILE`")
    return Field(file, value)


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:37]}…"
