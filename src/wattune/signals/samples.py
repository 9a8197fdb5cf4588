"""Samples of power over time, as they come: unevenly spaced, with gaps, repeats and clocks that jump."""

from __future__ import annotations

from collections.abc import Generator, Iterable
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from wattune.core.reading import Reading

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]
Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class PowerSamples:
    """Power, and utilisation where it is known, at these times; NaN where a sample lacks a value."""

    time_s: Floats
    power_w: Floats
    sm_util: Floats | None = None
    """Share of time in which kernels ran, 0 to 1."""
    mem_util: Floats | None = None
    """Share of time in which the memory was busy, 0 to 1."""

    def __post_init__(self) -> None:
        for values in (self.power_w, self.sm_util, self.mem_util):
            if values is not None and values.shape != self.time_s.shape:
                raise ValueError("each time of the samples has one value of every kind")

    @classmethod
    def of(cls, readings: Iterable[Reading]) -> PowerSamples:
        """Take power and utilisation from readings."""
        known = tuple(readings)
        return cls(
            np.array([reading.time_s for reading in known], dtype=np.float64),
            _values([reading.power_w for reading in known]),
            _values([reading.sm_util for reading in known]),
            _values([reading.mem_util for reading in known]),
        )

    def __len__(self) -> int:
        return len(self.time_s)

    @property
    def duration_s(self) -> float:
        return float(self.time_s[-1] - self.time_s[0]) if len(self) else 0.0

    def since(self, time_s: float) -> PowerSamples:
        return self.where(self.time_s >= time_s)

    def newest(self, most: int) -> PowerSamples:
        return self if len(self) <= most else self.where(np.arange(len(self)) >= len(self) - most)

    def joined(self, later: PowerSamples) -> PowerSamples:
        return PowerSamples(
            np.concatenate((self.time_s, later.time_s)),
            np.concatenate((self.power_w, later.power_w)),
            _joined(self, later, "sm_util"),
            _joined(self, later, "mem_util"),
        )

    def in_order(self) -> PowerSamples:
        """Drop samples without power and make times increase.

        Where the clock was set back, everything after that is shifted forward. Of samples with the same time the last
        is kept.
        """
        known = self.where(np.isfinite(self.time_s) & np.isfinite(self.power_w))
        if len(known) < 2:
            return known
        steps_s = np.diff(known.time_s)
        if np.any(steps_s < 0):
            usual_s = float(np.median(steps_s[steps_s > 0])) if np.any(steps_s > 0) else 0.0
            moved_s = np.cumsum(np.where(steps_s < 0, usual_s, steps_s))
            known = replace(known, time_s=known.time_s[0] + np.concatenate(([0.0], moved_s)))
        return known.where(np.append(np.diff(known.time_s) > 0, True))

    def where(self, which: Flags) -> PowerSamples:
        return PowerSamples(
            self.time_s[which],
            self.power_w[which],
            None if self.sm_util is None else self.sm_util[which],
            None if self.mem_util is None else self.mem_util[which],
        )


def _values(values: list[float | None]) -> Floats:
    return np.array([np.nan if value is None else value for value in values], dtype=np.float64)


def _joined(first: PowerSamples, later: PowerSamples, name: str) -> Floats | None:
    parts = [getattr(part, name) for part in (first, later)]
    if all(part is None for part in parts):
        return None
    filled = (
        np.full(len(part), np.nan) if own is None else own for part, own in zip((first, later), parts, strict=True)
    )
    return np.concatenate(tuple(filled))


T = TypeVar("T")

Work = Generator[None, None, T]


def done(work: Work[T]) -> T:
    """Do all of the work at once and return its result."""
    while True:
        try:
            next(work)
        except StopIteration as end:
            result: T = end.value
            return result


class IncrementalTask(Generic[T]):
    """Work with its progress, so that several values can share it: each asks for its own number of steps."""

    def __init__(self, work: Work[T]) -> None:
        self._work = work
        self._steps = 0
        self._whole: int | None = None
        self._result: T | None = None

    def after(self, steps: int) -> T | None:
        """Return the result if so many steps are all of the work, else None."""
        while self._whole is None and self._steps < steps:
            self._steps += 1
            try:
                next(self._work)
            except StopIteration as end:
                self._whole, self._result = self._steps, end.value
        return self._result if self._whole is not None and steps >= self._whole else None
