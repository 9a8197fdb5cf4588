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
    """Power, and where it was told utilisation, at these times; not a number where a sample lacks a value."""

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
        """What readings tell of power and utilisation."""
        seen = tuple(readings)
        return cls(
            np.array([reading.time_s for reading in seen], dtype=np.float64),
            _told([reading.power_w for reading in seen]),
            _told([reading.sm_util for reading in seen]),
            _told([reading.mem_util for reading in seen]),
        )

    def __len__(self) -> int:
        return len(self.time_s)

    @property
    def duration_s(self) -> float:
        """From the first sample to the last."""
        return float(self.time_s[-1] - self.time_s[0]) if len(self) else 0.0

    def since(self, time_s: float) -> PowerSamples:
        """The samples from a time on."""
        return self.where(self.time_s >= time_s)

    def newest(self, most: int) -> PowerSamples:
        """The last so many samples."""
        return self if len(self) <= most else self.where(np.arange(len(self)) >= len(self) - most)

    def joined(self, later: PowerSamples) -> PowerSamples:
        """These samples and later ones."""
        return PowerSamples(
            np.concatenate((self.time_s, later.time_s)),
            np.concatenate((self.power_w, later.power_w)),
            _joined(self, later, "sm_util"),
            _joined(self, later, "mem_util"),
        )

    def in_order(self) -> PowerSamples:
        """The samples that have a power, at times that rise.

        Where the clock was set back, all that follows is moved on to where it would have come without that. Of samples
        with one stamp the last is kept.
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
        """The samples that are marked."""
        return PowerSamples(
            self.time_s[which],
            self.power_w[which],
            None if self.sm_util is None else self.sm_util[which],
            None if self.mem_util is None else self.mem_util[which],
        )


def _told(values: list[float | None]) -> Floats:
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
    """What comes of the work, all of it done at once."""
    while True:
        try:
            next(work)
        except StopIteration as end:
            result: T = end.value
            return result


class IncrementalTask(Generic[T]):
    """Work that remembers how far it has come, so that whoever asks for a bit that was done before gets the same."""

    def __init__(self, work: Work[T]) -> None:
        self._work = work
        self._bits = 0
        self._whole: int | None = None
        self._result: T | None = None

    def after(self, bits: int) -> T | None:
        """What came of the work once so many bits are done; None where that is not yet all."""
        while self._whole is None and self._bits < bits:
            self._bits += 1
            try:
                next(self._work)
            except StopIteration as end:
                self._whole, self._result = self._bits, end.value
        return self._result if self._whole is not None and bits >= self._whole else None
