"""Results of a benchmark: rows, and goals that were met or missed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from wattune.core.errors import InputError

Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Goal:
    """A figure, its goal, and whether it was met; None where it could not be measured here."""

    name: str
    value: float | None
    goal: str
    met: bool | None
    note: str | None = None
    """A remark without which the figure cannot be compared fairly."""

    @property
    def document(self) -> dict[str, Any]:
        note = {} if self.note is None else {"note": self.note}
        return {"name": self.name, "value": self.value, "goal": self.goal, "met": self.met, **note}


@dataclass(frozen=True, slots=True, kw_only=True)
class Bench:
    """The outcome of one benchmark."""

    bench: str
    simulated: bool
    rows: tuple[Row, ...]
    goals: tuple[Goal, ...]
    notes: tuple[str, ...] = field(default=())
    figures: Mapping[str, Any] = field(default_factory=dict)
    """Further entries of the summary, by name."""

    @property
    def document(self) -> dict[str, Any]:
        """The JSON document of every bench."""
        return {
            "bench": self.bench,
            "simulated": self.simulated,
            "rows": [dict(row) for row in self.rows],
            "summary": {"goals": [goal.document for goal in self.goals], "notes": list(self.notes), **self.figures},
        }


def at_most(name: str, value: float | None, bound: float, *, unit: str = "", note: str | None = None) -> Goal:
    """Make a goal that a figure does not exceed a bound."""
    return Goal(name, value, f"≤ {bound:g}{unit}", None if value is None else value <= bound, note)


def at_least(name: str, value: float | None, bound: float, *, unit: str = "", note: str | None = None) -> Goal:
    """Make a goal that a figure reaches a bound."""
    return Goal(name, value, f"≥ {bound:g}{unit}", None if value is None else value >= bound, note)


def part(rows: Iterable[Row] = (), goals: Iterable[Goal] = (), notes: Iterable[str] = ()) -> Bench:
    """Make one section of a bench; it is simulated where one of its rows says so."""
    found = tuple(rows)
    simulated = any(row.get("simulated", False) for row in found)
    return Bench(bench="", simulated=simulated, rows=found, goals=tuple(goals), notes=tuple(notes))


def joined(name: str, parts: Iterable[Bench]) -> Bench:
    """Join the sections of a bench to one outcome."""
    every = tuple(parts)
    return Bench(
        bench=name,
        simulated=any(own.simulated for own in every),
        rows=tuple(row for own in every for row in own.rows),
        goals=tuple(goal for own in every for goal in own.goals),
        notes=tuple(note for own in every for note in own.notes),
        figures={key: value for own in every for key, value in own.figures.items()},
    )


def check_sections(sections: Iterable[str], known: Sequence[str], *, kind: str = "section") -> None:
    """Refuse a section, or another part, that a bench does not have."""
    for section in sections:
        if section not in known:
            raise InputError(f"there is no {kind} {section!r}", hint=f"there are {', '.join(known)}")
