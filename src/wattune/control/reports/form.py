"""How programs write their metric into a file or into the body of an HTTP call.

One line is one report: a JSON object (`{"metric": 0.71, "epoch": 3}`), a bare number, or the fields of a CSV table
whose columns are `epoch,metric` unless its first line names them otherwise. JSON can also tell steps (`{"step": 200}`)
and that the batch size does not fit (`{"error": "out_of_memory"}`).
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import Any

from wattune.control.reports.report import NoMemory, Report, Step, Told, Unreadable, finite, number_of

OUT_OF_MEMORY = "out_of_memory"
_COLUMNS = ("epoch", "metric", "step")
_SHOWN = 60


@dataclass(frozen=True, slots=True)
class LineForm:
    """What the columns of a table are, as far as it was said."""

    columns: tuple[str, ...] = ("epoch", "metric")

    def read(self, line: str) -> tuple[LineForm, Told | None]:
        """The form from here on, and what a line tells; None where it tells nothing, as a heading."""
        line = line.strip().removeprefix("\ufeff")
        if not line or line.startswith("#"):
            return self, None
        if line.startswith("{"):
            return self, read_object(line)
        fields = [field.strip() for field in line.split(",")]
        named = tuple(field.strip('"').lower() for field in fields)
        if "metric" in named:
            return replace(self, columns=named), None
        if len(fields) == 1:
            return self, _number(line)
        return self, self._row(fields, line)

    def _row(self, fields: list[str], line: str) -> Told:
        if len(fields) != len(self.columns):
            return _unreadable(line, f"it has {len(fields)} fields where {','.join(self.columns)} has another number")
        found = dict(zip(self.columns, fields, strict=True))
        if not found["metric"] and found.get("step"):
            return _step(found["step"], line)
        epoch = found.get("epoch") or None
        if epoch is not None and _whole(epoch) is None:
            return _unreadable(line, f"{epoch[:_SHOWN]!r} is no epoch")
        return Report(number_of(found["metric"]), None if epoch is None else _whole(epoch))


def read_object(text: str) -> Told:
    """What a JSON object tells."""
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        return _unreadable(text, "it is no JSON")
    if not isinstance(document, dict):
        return _unreadable(text, "it is no JSON object")
    if "error" in document:
        return NoMemory() if document["error"] == OUT_OF_MEMORY else _unreadable(text, "its error is not known")
    if "metric" in document:
        return _report(document, text)
    if "step" in document:
        return _step(document["step"], text)
    return _unreadable(text, "it has neither metric nor step")


def _report(document: dict[str, Any], text: str) -> Told:
    metric, epoch = document["metric"], document.get("epoch")
    if metric is not None and (isinstance(metric, bool) or not isinstance(metric, int | float)):
        return _unreadable(text, "its metric is no number")
    if epoch is not None and _whole(epoch) is None:
        return _unreadable(text, "its epoch is no whole number")
    try:
        value = None if metric is None else finite(float(metric))
    except OverflowError:
        value = None
    return Report(value, None if epoch is None else _whole(epoch))


def _step(step: object, text: str) -> Told:
    number = _whole(step)
    return _unreadable(text, "its step is no whole number") if number is None or number < 0 else Step(number)


def _number(line: str) -> Told:
    try:
        return Report(finite(float(line)))
    except ValueError:
        return _unreadable(line, "it is neither JSON, a number nor a row of a table")


def _whole(value: object) -> int | None:
    """The whole number that a value is, 3.0 and "3" included; None where it is none."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        number = float(value)
        return int(number) if number == int(number) else None
    except (ValueError, OverflowError):
        return None


def _unreadable(text: str, reason: str) -> Unreadable:
    shown = text if len(text) <= _SHOWN else text[: _SHOWN - 1] + "…"
    return Unreadable(f"{shown!r} tells no metric: {reason}")
