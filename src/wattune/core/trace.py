"""Readings of one GPU over time."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

from wattune.core.reading import Reading


@dataclass(frozen=True, slots=True)
class Trace:
    """Readings in the order of their time, each of which brought something new."""

    gpu: str
    readings: tuple[Reading, ...]

    def __post_init__(self) -> None:
        times = [reading.time_s for reading in self.readings]
        if any(late < early for early, late in pairwise(times)):
            raise ValueError("the readings of a trace are in the order of their time")

    @property
    def duration_s(self) -> float:
        """From the first reading to the last."""
        return self.readings[-1].time_s - self.readings[0].time_s if self.readings else 0.0
