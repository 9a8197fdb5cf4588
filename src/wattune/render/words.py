"""Words and units for jobs: long times, what a cost is counted in, how a run ended."""

from __future__ import annotations

from collections.abc import Iterable

from wattune.core.job import JobGpu, Outcome
from wattune.render.quantity import UNKNOWN, Unit, number, quantity, unit_for

_UNITS = {
    "cost": ("cost", "J"),
    "energy": ("energy", "J"),
    "deadline": ("energy", "J"),
    "money": ("cost", ""),
    "carbon": ("carbon", "g"),
    "edp": ("energy × time", "J·s"),
    "ed2p": ("energy × time²", "J·s²"),
    "power": ("time", "s"),
}
ENDS = {
    Outcome.RUNNING: "still running",
    Outcome.REACHED: "reached the target",
    Outcome.MISSED: "missed the target",
    Outcome.STOPPED: "stopped by us",
    Outcome.OUT_OF_MEMORY: "out of memory",
    Outcome.CRASHED: "crashed",
    Outcome.LOST: "never heard of again",
}
"""How a run ended, for people."""


def counted_in(objective: str) -> tuple[str, str]:
    """What the value of an objective such as `cost:0.5` is, and its unit; money has none."""
    return _UNITS[objective.strip().lower().partition(":")[0]]


def long_unit(values_s: Iterable[float]) -> Unit:
    """The unit for times of whole runs: seconds, and from two hours on hours."""
    known = tuple(values_s)
    return Unit("h", 1 / 3600) if max(known, default=0.0) >= 7200 else unit_for(known, "s")


def duration(seconds: float | None) -> str:
    """A time of a run in words."""
    if seconds is None:
        return UNKNOWN
    unit = long_unit((seconds,))
    return f"{number(seconds * unit.factor)} {unit.symbol}"


def amount(value: float | None, unit: str) -> str:
    """A value of an objective in words; money stands without a unit."""
    return quantity(value, unit) if unit else number(value)


def part(gpu: JobGpu) -> str:
    """The part in words; a simulated one says so."""
    several = f"{gpu.count} × " if gpu.count > 1 else ""
    return f"{several}{gpu.name}" + (" (simulated)" if gpu.simulated else "")


def counted(number_of: int, thing: str) -> str:
    """Such as `1 run` or `3 runs`."""
    return f"{number_of} {thing}{'' if number_of == 1 else 's'}"
