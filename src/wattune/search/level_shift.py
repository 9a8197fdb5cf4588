"""Whether a quantity that was seen again and again has changed, by cumulative sums of its residuals.

Each value is compared with the mean of earlier ones of the same kind (a batch size, say), so that a change which all
kinds share is seen whichever of them are run. Page, "Continuous inspection schemes", Biometrika 1954.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field

_SLACK = 0.75
"""Standard deviations that every value may be off without being counted."""

_ALARM = 8.0
"""Three values are enough for a change by four deviations or more, six for one by two. Epochs are skewed (now and then
a run takes half as long again), so that a lower threshold takes three unlucky runs in a row for a change."""

_CLIP = 4.0
"""Standard deviations that one value can count for: a single odd run is no change."""

_PRIOR_RUNS = 4.0
"""How many values the assumed spread is worth."""


_UNDONE = 1.5
"""Standard deviations of their sum that values after a change are off, below which there was none."""


@dataclass(frozen=True, slots=True)
class Shifts:
    """In which stretch between changes each value lies, the newest being 0, and how far values scatter within one."""

    stretch: tuple[int, ...]
    sd: float


def shifts(values: Sequence[tuple[Hashable, float, float]], *, sd: float) -> Shifts:
    """Where the values (kind, value, least standard deviation of it), oldest first, changed.

    `sd` is what scatter to assume as long as little was seen.
    """
    starts: list[int] = [0]
    watch = _Watch(sd)
    for place, (kind, value, floor) in enumerate(values):
        begun = watch.see(place, kind, value, floor)
        if begun is not None:
            # The scatter is that of the values before the change: those that told of it are not scatter.
            calm = _Watch(sd)
            for before in range(starts[-1], begun):
                calm.see(before, *values[before])
            starts.append(begun)
            watch = _Watch(calm.sd)
            for again in range(begun, place + 1):
                watch.see(again, *values[again])
    while len(starts) > 1 and _is_undone(values, starts[-2], starts[-1], watch.sd):
        starts.pop()
    number = len(starts) - 1
    stretch = []
    current = -1
    for place in range(len(values)):
        while current < number and place >= starts[current + 1]:
            current += 1
        stretch.append(number - current)
    return Shifts(tuple(stretch), watch.sd)


def _is_undone(values: Sequence[tuple[Hashable, float, float]], before: int, since: int, sd: float) -> bool:
    """Whether all values since a change, taken together, are what they were before it: an unlucky streak, no change."""
    earlier, later = _sums(values[before:since]), _sums(values[since:])
    off = variance = 0.0
    for kind in earlier.keys() & later.keys():
        (before_sum, seen, _), (sum_, count, floor) = earlier[kind], later[kind]
        off += sum_ - count * before_sum / seen
        variance += max(sd, floor) ** 2 * (count + count**2 / seen)
    return variance > 0.0 and abs(off) < _UNDONE * variance**0.5


def _sums(values: Sequence[tuple[Hashable, float, float]]) -> dict[Hashable, tuple[float, int, float]]:
    """By kind: the sum of its values, how many there are, and the least standard deviation of one."""
    sums: dict[Hashable, tuple[float, int, float]] = {}
    for kind, value, floor in values:
        total, seen, _ = sums.get(kind, (0.0, 0, 0.0))
        sums[kind] = (total + value, seen + 1, floor)
    return sums


@dataclass(slots=True)
class _Watch:
    prior_sd: float
    squares: float = 0.0
    count: float = 0.0
    sums: dict[Hashable, tuple[float, int]] = field(default_factory=dict)
    above: tuple[float, int] = (0.0, -1)
    below: tuple[float, int] = (0.0, -1)

    @property
    def sd(self) -> float:
        """How far values scatter."""
        return float(((_PRIOR_RUNS * self.prior_sd**2 + self.squares) / (_PRIOR_RUNS + self.count)) ** 0.5)

    def see(self, place: int, kind: Hashable, value: float, floor: float) -> int | None:
        """Where a change began, if this value makes it certain that there was one."""
        total, seen = self.sums.get(kind, (0.0, 0))
        self.sums[kind] = (total + value, seen + 1)
        if not seen:
            return None
        off = value - total / seen
        spread = max(self.sd, floor) * (1.0 + 1.0 / seen) ** 0.5
        score = min(max(off / spread, -_CLIP), _CLIP)
        # Residuals about a mean of few values are wider than the scatter; odd ones count as little as in the score.
        self.squares += (score * spread) ** 2 * seen / (seen + 1.0)
        self.count += 1.0
        self.above = _summed(self.above, score, place)
        self.below = _summed(self.below, -score, place)
        for sum_, since in (self.above, self.below):
            if sum_ > _ALARM:
                return since
        return None


def _summed(sum_: tuple[float, int], score: float, place: int) -> tuple[float, int]:
    value = max(0.0, sum_[0] + score - _SLACK)
    return (value, sum_[1] if sum_[0] > 0.0 else place) if value > 0.0 else (0.0, -1)
