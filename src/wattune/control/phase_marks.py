"""The phases of a step that a program reports, and what each takes and spends between two instants.

A phase lasts until the next one begins; the last one of a step lasts until the first one of the next step begins, so
that phases add up to the whole time. A phase that occurs several times in a step is numbered: forward, forward#2.

Notation
    t       time at which a phase began, by the GPU's clock
    E(t)    energy counter, interpolated between its readings
The cost of a phase in one step is t' - t and E(t') - E(t), with t' the beginning of the next. Its cost in a window is
the mean over all complete steps in it that have the usual phases; the error follows from their scatter.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from math import hypot, sqrt
from threading import Lock

import numpy as np
from numpy.typing import NDArray

from wattune.control.stamps import Stamp
from wattune.control.window_totals import mean_error, working_mhz
from wattune.core.measurement import Measurement
from wattune.core.reading import Reading
from wattune.core.window import PhaseCost

Floats = NDArray[np.float64]

KEPT = 20_000
"""Marks in memory: steps whose phases are long enough for a setting of their own have few."""
USUAL = 0.8
"""Share of the steps of a window that must have the same phases; others are last batches and evaluations."""
LEAST_STEPS = 2
RENEWED_S = 300.0
"""Time after which stamps are placed again: the clocks of GPU and host drift apart by some tens of ppm."""


@dataclass(frozen=True, slots=True)
class PhaseMark:
    """The beginning of a phase."""

    time_s: float
    name: str
    begins_step: bool
    """True for the first phase of a step."""


class PhaseMarks:
    """The beginnings of phases; filled from the program's thread, read from ours."""

    def __init__(self) -> None:
        self._marks: deque[PhaseMark] = deque(maxlen=KEPT)
        self._pending: deque[tuple[Stamp, PhaseMark]] = deque(maxlen=KEPT)
        self._clock = StampClock()
        self._seen: Counter[str] = Counter()
        self._lock = Lock()

    @property
    def has_any(self) -> bool:
        return bool(self._marks)

    def add(self, name: str, time_s: float, *, stamp: Stamp | None = None) -> str:
        """Note that a phase begins, now or where the GPU gets to the stamp; return its name with its number."""
        with self._lock:
            begins_step = not self._seen
            self._seen[name] += 1
            count = self._seen[name]
            numbered = name if count == 1 else f"{name}#{count}"
            mark = PhaseMark(time_s, numbered, begins_step)
            if stamp is None:
                self._marks.append(mark)
            else:
                self._pending.append((stamp, mark))
        return numbered

    def end_step(self) -> None:
        """Note that the next phase is the first one of a new step."""
        with self._lock:
            self._seen.clear()

    def resolve(self, now_s: float) -> None:
        """Place the marks whose stamps the GPU has passed by now."""
        while self._pending and self._pending[0][0].passed():
            stamp, mark = self._pending.popleft()
            placed = replace(mark, time_s=self._clock.time_s(stamp, now_s))
            with self._lock:
                self._marks.append(placed)

    def begins_step(self, after_s: float, until_s: float) -> bool:
        """Return whether a step began after one instant and up to another."""
        with self._lock:
            for mark in reversed(self._marks):
                if mark.time_s <= after_s:
                    return False
                if mark.begins_step and mark.time_s <= until_s:
                    return True
        return False

    def between(self, start_s: float, end_s: float) -> tuple[PhaseMark, ...]:
        with self._lock:
            return tuple(mark for mark in self._marks if start_s <= mark.time_s <= end_s)


class StampClock:
    """Converts stamps in the work of a GPU to its time, from when they were first seen to have passed.

    A stamp is seen late, never early: of the stamps of some minutes, that with the least delay places the others.
    """

    def __init__(self) -> None:
        self._first: Stamp | None = None
        self._first_s = 0.0

    def time_s(self, stamp: Stamp, seen_s: float) -> float:
        """Return when the GPU passed a stamp that was seen to have passed at `seen_s`."""
        since_s = 0.0 if self._first is None else self._first.seconds_to(stamp)
        if self._first is None or since_s > RENEWED_S:
            self._first, self._first_s, since_s = stamp, seen_s, 0.0
        self._first_s = min(self._first_s, seen_s - since_s)
        return self._first_s + since_s


def phase_costs(marks: Sequence[PhaseMark], readings: Sequence[Reading]) -> tuple[PhaseCost, ...]:
    """Return the phases of a step in their order; none where there are too few steps, or their phases differ."""
    steps = _steps(marks)
    if not steps:
        return ()
    known = [reading for reading in readings if reading.energy_j is not None]
    times_s = np.array([reading.exact_s for reading in known])
    if len(known) < 2:
        return ()
    inside = [step for step in steps if times_s[0] <= step[0].time_s and step[-1].time_s <= times_s[-1]]
    if len(inside) < LEAST_STEPS:
        return ()
    ends_s = np.array([[mark.time_s for mark in step] for step in inside])
    counted_j = np.interp(ends_s, times_s, np.array([reading.energy_j for reading in known], dtype=np.float64))
    clocks = _clocks(ends_s, known)
    error_s = sqrt(2.0) * float(np.mean([reading.exact_error_s for reading in known]))
    return tuple(
        PhaseCost(
            mark.name, _mean(ends_s[:, place : place + 2], counted_j[:, place : place + 2], error_s), clocks[place]
        )
        for place, mark in enumerate(inside[0][:-1])
    )


def _steps(marks: Sequence[PhaseMark]) -> list[tuple[PhaseMark, ...]]:
    """Return the complete steps with the usual phases, each with the first mark of the step after it."""
    starts = [place for place, mark in enumerate(marks) if mark.begins_step]
    whole = [tuple(marks[start : end + 1]) for start, end in pairwise(starts)]
    kinds = Counter(_names(step) for step in whole)
    usual, count = kinds.most_common(1)[0] if kinds else ((), 0)
    if count < max(USUAL * len(whole), LEAST_STEPS):
        return []
    return [step for step in whole if _names(step) == usual]


def _names(step: tuple[PhaseMark, ...]) -> tuple[str, ...]:
    return tuple(mark.name for mark in step[:-1])


def _mean(ends_s: Floats, counted_j: Floats, error_s: float) -> Measurement:
    """Average time and energy of a phase over steps; `ends_s` and `counted_j` are (steps, 2).

    `error_s` is how well the times are known at which the counter was exact, at both ends together.
    """
    times_s, energies_j = np.diff(ends_s)[:, 0], np.maximum(np.diff(counted_j)[:, 0], 0.0)
    time_s, energy_j = float(times_s.mean()), float(energies_j.mean())
    scatter_s, scatter_j = mean_error(times_s.tolist()) or 0.0, mean_error(energies_j.tolist()) or 0.0
    edge_j = error_s * energy_j / time_s / len(times_s) ** 0.5 if time_s > 0 else 0.0
    return Measurement(time_s, energy_j, scatter_s, hypot(scatter_j, edge_j))


def _clocks(ends_s: Floats, readings: Sequence[Reading]) -> list[float | None]:
    """Return the mean core clock in each phase, of the readings in the later half of it: by then it has settled."""
    found: list[list[float]] = [[] for _ in range(ends_s.shape[1] - 1)]
    starts_s = ends_s[:, 0]
    for reading in readings:
        sm_mhz, step = working_mhz(reading), int(np.searchsorted(starts_s, reading.time_s, side="right")) - 1
        if sm_mhz is None or step < 0 or reading.time_s >= ends_s[step, -1]:
            continue
        phase = int(np.searchsorted(ends_s[step], reading.time_s, side="right")) - 1
        if reading.time_s >= ends_s[step, phase : phase + 2].mean():
            found[phase].append(sm_mhz)
    return [float(np.mean(clocks)) if clocks else None for clocks in found]
