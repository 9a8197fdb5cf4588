"""Detect when the level of a repeated measurement shifts, by cumulative sums of its residuals (CUSUM).

Each value is compared with the mean of earlier ones of the same kind, such as a batch size, so that a shift that all
kinds share is detected whichever of them are measured. Page, "Continuous inspection schemes", Biometrika 1954.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field, replace

Value = tuple[Hashable, float, float]
"""Kind, value, and the least standard deviation of the value."""

_SLACK = 0.75
"""Standard deviations by which each value may differ without counting."""

_ALARM = 8.0
"""Three values are enough to detect a shift by four deviations or more, six for one by two. Epochs are skewed (now and
then a run takes half as long again), so that a lower threshold would mistake three unlucky runs for a shift."""

_CLIP = 4.0
"""Standard deviations that one value can count for: a single outlier is no shift."""

_PRIOR_RUNS = 4.0
"""Weight of the assumed spread, in values."""

_UNDONE = 1.5
"""A shift is discarded where the sum of the values after it differs by fewer standard deviations than this."""


@dataclass(frozen=True, slots=True)
class Shifts:
    """The interval between shifts of each value, the newest being 0, and the scatter within an interval."""

    interval: tuple[int, ...]
    sd: float


def shifts(values: Sequence[Value], *, sd: float) -> Shifts:
    """Find the shifts of the values, oldest first; `sd` is the scatter to assume while there are few."""
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
    """State of a scan over the values."""

    sd: float
    watch: _Watch
    starts: tuple[int, ...] = (0,)

    def add(self, values: Sequence[Value], place: int) -> None:
        begun = self.watch.add(place, *values[place])
        if begun is None:
            return
        # The scatter is that of the values before the shift.
        calm = _Watch(self.sd)
        for before in range(self.starts[-1], begun):
            calm.add(before, *values[before])
        self.starts = (*self.starts, begun)
        self.watch = _Watch(calm.sd)
        for again in range(begun, place + 1):
            self.watch.add(again, *values[again])


_scans: OrderedDict[tuple[tuple[Value, ...], float], _Scan] = OrderedDict()
"""The latest scans by their values: a history is scanned again and again, each time with one more value."""

_KEPT_SCANS = 16


def _scanned(values: tuple[Value, ...], sd: float) -> _Scan:
    earlier = _scans.get((values, sd)) or _scans.get((values[:-1], sd))
    scan = _Scan(sd, _Watch(sd)) if earlier is None else replace(earlier, watch=earlier.watch.copied())
    for place in range(scan.watch.next_place, len(values)):
        scan.add(values, place)
    _scans[values, sd] = scan
    while len(_scans) > _KEPT_SCANS:
        _scans.popitem(last=False)
    return scan


def _is_undone(values: Sequence[Value], before: int, since: int, sd: float) -> bool:
    """Return True where the mean since a shift equals that before it: an unlucky streak, no shift."""
    earlier, later = _sums(values[before:since]), _sums(values[since:])
    off = variance = 0.0
    for kind in earlier.keys() & later.keys():
        (before_sum, before_count, _), (sum_, count, floor) = earlier[kind], later[kind]
        off += sum_ - count * before_sum / before_count
        variance += max(sd, floor) ** 2 * (count + count**2 / before_count)
    return variance > 0.0 and abs(off) < _UNDONE * variance**0.5


def _sums(values: Sequence[Value]) -> dict[Hashable, tuple[float, int, float]]:
    """Return by kind the sum and number of its values, and the least standard deviation of one."""
    sums: dict[Hashable, tuple[float, int, float]] = {}
    for kind, value, floor in values:
        total, count, _ = sums.get(kind, (0.0, 0, 0.0))
        sums[kind] = (total + value, count + 1, floor)
    return sums


@dataclass(slots=True)
class _Watch:
    prior_sd: float
    squares: float = 0.0
    count: float = 0.0
    sums: dict[Hashable, tuple[float, int]] = field(default_factory=dict)
    above: tuple[float, int] = (0.0, -1)
    below: tuple[float, int] = (0.0, -1)
    next_place: int = 0

    def copied(self) -> _Watch:
        return replace(self, sums=dict(self.sums))

    @property
    def sd(self) -> float:
        return float(((_PRIOR_RUNS * self.prior_sd**2 + self.squares) / (_PRIOR_RUNS + self.count)) ** 0.5)

    def add(self, place: int, kind: Hashable, value: float, floor: float) -> int | None:
        """Add a value; return where a shift began, if this value confirms one."""
        self.next_place = place + 1
        total, earlier = self.sums.get(kind, (0.0, 0))
        self.sums[kind] = (total + value, earlier + 1)
        if not earlier:
            return None
        off = value - total / earlier
        spread = max(self.sd, floor) * (1.0 + 1.0 / earlier) ** 0.5
        score = min(max(off / spread, -_CLIP), _CLIP)
        # Residuals around a mean of few values are wider than the scatter; outliers are clipped as in the score.
        self.squares += (score * spread) ** 2 * earlier / (earlier + 1.0)
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
