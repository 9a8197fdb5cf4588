"""Where a program's progress can be seen, and which of these places is believed.

Steps that the program reports win, then a period in its power, then counters, then utilisation; where none of them
tells a pace the program is tuned without one. Units differ from source to source, so paces are compared only within
one: a run stays with the source that told its first pace.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from wattune.tuning.run_sight import Pace

STEPS, LINES, PERIOD, COUNTERS, UTILISATION = "steps", "lines", "period", "counters", "utilisation"
ORDER = (STEPS, LINES, PERIOD, COUNTERS, UTILISATION)
"""Best first."""

ALL_KNOBS = frozenset(("sm_clock", "mem_clock", "power_limit"))


@dataclass(frozen=True, slots=True)
class Source:
    """A place where progress can be seen."""

    name: str
    between: Callable[[float, float], Pace | None]
    """The pace between two instants, with its error; None where it cannot be told."""
    judges: frozenset[str] = ALL_KNOBS
    """The knobs across which its paces may be compared."""


def pace_of(
    sources: Sequence[Source],
    start_s: float,
    end_s: float,
    *,
    knobs: frozenset[str] = ALL_KNOBS,
    only: str | None = None,
) -> Pace | None:
    """The pace between two instants by the best source that tells one and can judge these knobs.

    `only` names the source that told the first pace of the run.
    """
    for source in ordered(sources):
        if only not in (None, source.name) or not knobs <= source.judges:
            continue
        pace = source.between(start_s, end_s)
        if pace is not None:
            return pace
    return None


def ordered(sources: Sequence[Source]) -> tuple[Source, ...]:
    """The sources, best first; those of other names last."""
    places = {name: place for place, name in enumerate(ORDER)}
    return tuple(sorted(sources, key=lambda source: places.get(source.name, len(ORDER))))
