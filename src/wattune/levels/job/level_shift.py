"""Whether a quantity that was seen again and again has changed, by cumulative sums of its residuals.

Each value is compared with the mean of earlier ones of the same kind (a batch size, say), so that a change which all
kinds share is seen whichever of them are run. Page, "Continuous inspection schemes", Biometrika 1954.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field, replace

Value = tuple[Hashable, float, float]
"""Of what kind it is, the value, and the least standard deviation that it has."""

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

    interval: tuple[int, ...]
    sd: float


def shifts(values: Sequence[Value], *, sd: float) -> Shifts:
    """Where the values (kind, value, least standard deviation of it), oldest first, changed.

    `sd` is what scatter to assume as long as little was seen.
    """
    found = _scanned(tuple(values), sd)
    starts = list(found.starts)
    while len(starts) > 1 and _is_undone(values, starts[-2], starts[-1], found.watch.sd):
        starts.pop()
    ends = (*starts[1:], len(values))
    interval = [number for number, (start, end) in enumerate(zip(starts, ends, strict=True)) for _ in range(start, end)]
    newest = len(starts) - 1
    return Shifts(tuple(newest - number for number in interval), found.watch.sd)


@dataclass(slots=True)
class _Scan:
    """How far values have been gone through."""

    sd: float
    watch: _Watch
    starts: tuple[int, ...] = (0,)

    def see(self, values: Sequence[Value], place: int) -> None:
        """Nothing; the value at that place was seen, after all before it."""
        begun = self.watch.see(place, *values[place])
        if begun is None:
            return
        # The scatter is that of the values before the change: those that told of it are not scatter.
        calm = _Watch(self.sd)
        for before in range(self.starts[-1], begun):
            calm.see(before, *values[before])
        self.starts = (*self.starts, begun)
        self.watch = _Watch(calm.sd)
        for again in range(begun, place + 1):
            self.watch.see(again, *values[again])


_scans: OrderedDict[tuple[tuple[Value, ...], float], _Scan] = OrderedDict()
"""The last scans, by what they have seen: a history is asked about again and again, each time by one value longer."""

_KEPT_SCANS = 16


def _scanned(values: tuple[Value, ...], sd: float) -> _Scan:
    """The scan of all the values."""
    earlier = _scans.get((values, sd)) or _scans.get((values[:-1], sd))
    scan = _Scan(sd, _Watch(sd)) if earlier is None else replace(earlier, watch=earlier.watch.copied())
    for place in range(scan.watch.seen, len(values)):
        scan.see(values, place)
    _scans[values, sd] = scan
    while len(_scans) > _KEPT_SCANS:
        _scans.popitem(last=False)
    return scan


def _is_undone(values: Sequence[Value], before: int, since: int, sd: float) -> bool:
    """Whether all values since a change, taken together, are what they were before it: an unlucky streak, no change."""
    earlier, later = _sums(values[before:since]), _sums(values[since:])
    off = variance = 0.0
    for kind in earlier.keys() & later.keys():
        (before_sum, seen, _), (sum_, count, floor) = earlier[kind], later[kind]
        off += sum_ - count * before_sum / seen
        variance += max(sd, floor) ** 2 * (count + count**2 / seen)
    return variance > 0.0 and abs(off) < _UNDONE * variance**0.5


def _sums(values: Sequence[Value]) -> dict[Hashable, tuple[float, int, float]]:
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
    seen: int = 0
    """The place after that of the last value."""

    def copied(self) -> _Watch:
        """A watch that goes on by itself from here."""
        return replace(self, sums=dict(self.sums))

    @property
    def sd(self) -> float:
        """How far values scatter."""
        return float(((_PRIOR_RUNS * self.prior_sd**2 + self.squares) / (_PRIOR_RUNS + self.count)) ** 0.5)

    def see(self, place: int, kind: Hashable, value: float, floor: float) -> int | None:
        """Where a change began, if this value makes it certain that there was one."""
        self.seen = place + 1
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
