"""Writes a catalogue file with fitted values and their source."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from copy import deepcopy
from typing import Any

from wattune.physics.fit.model_fit import FittedParameter


def fitted_document(
    document: Mapping[str, Any], parameters: Iterable[FittedParameter], *, key: str, source: str
) -> dict[str, Any]:
    """Return a catalogue document with the fitted values, marked measured, under a key of its own."""
    made = deepcopy(dict(document))
    made["key"] = key
    made.pop("aliases", None)
    for parameter in parameters:
        place = made
        *sections, last = parameter.key.split(".")
        for section in sections:
            place = place[section]
        words = f"{source}; ± {parameter.sd:.3g}"
        place[last] = {"value": float(f"{parameter.value:.6g}"), "mark": "measured", "source": words}
    return made


def document_text(document: Mapping[str, Any]) -> str:
    """Write TOML in the layout of the catalogue: plain values, then lists of tables, then sections."""
    lines = [
        "# mark: measured (by others, or by fit to a measured sweep), published (by the maker), estimated (by us)."
    ]
    lines += [f"{name} = {_value(value)}" for name, value in document.items() if not _is_table(value)]
    for name, value in document.items():
        if _is_tables(value):
            lines += [line for table in value for line in ("", f"[[{name}]]", *_entries(table))]
    for name, value in document.items():
        if isinstance(value, Mapping):
            lines += _section(name, value)
    return "\n".join(lines) + "\n"


def _section(name: str, section: Mapping[str, Any]) -> list[str]:
    plain = {key: value for key, value in section.items() if not _holds_entries(value)}
    lines = ["", f"[{name}]", *_entries(plain)] if plain else []
    for key, value in section.items():
        if _holds_entries(value):
            lines += _section(f"{name}.{key}", value)
    return lines


def _entries(table: Mapping[str, Any]) -> list[str]:
    return [f"{name} = {_value(value)}" for name, value in table.items()]


def _is_tables(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(item, Mapping) for item in value)


def _is_table(value: Any) -> bool:
    return isinstance(value, Mapping) or _is_tables(value)


def _holds_entries(value: Any) -> bool:
    """Whether a value is a section, such as unit.fp32, and not one sourced number."""
    return isinstance(value, Mapping) and bool(value) and all(isinstance(item, Mapping) for item in value.values())


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, list):
        return f"[{', '.join(_value(item) for item in value)}]"
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{name} = {_value(item)}" for name, item in value.items()) + " }"
    return _text(str(value))


def _text(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    plain = "".join(char if char.isprintable() else f"\\u{ord(char):04x}" for char in escaped)
    return f'"{plain}"'
