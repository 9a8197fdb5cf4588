"""`wattune bench change`: how soon a change of a program is found, and how often one is reported where there is none.

Programs are generated: samples with noise of several kinds, and shifts that are known.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from statistics import fmean

import numpy as np
from numpy.typing import NDArray

from wattune.signals.change import ChangeDetector, ProgramSample
from wattune_bench.result import Bench, Goal, Row, at_least, at_most

Floats = NDArray[np.float64]

POWER_W, UTIL = 300.0, 0.85
_SWAY, _SWAY_S = 0.03, 1200.0
"""Effect of the room on the power of a GPU: 3 % up and down in twenty minutes."""
_PER_KELVIN = (0.002, 0.0035)
"""Range of the share by which power rises per kelvin."""


@dataclass(frozen=True, slots=True)
class Warmth:
    """Drift of power in a GPU that warms up."""

    share: float = 0.05
    over_s: float = 60.0
    """Time constant: 20 to 60 s are on record for air."""
    reported: bool = True
    """True where the GPU reports its temperature, in whole degrees."""


@dataclass(frozen=True, slots=True)
class Kind:
    """The variation of a program from period to period."""

    name: str
    noise: float
    """Standard deviation of a single period, relative."""
    alike: float = 0.0
    """Correlation of neighbouring periods."""
    heavy: bool = False
    """True for tails of Student's t with four degrees of freedom."""
    stalls: float = 0.0
    """Share of periods that take half as long again, at two thirds of the power."""
    warmth: Warmth | None = None
    """None where the GPU is warm from the start."""
    period_s: float = 1.0
    judged: bool = True
    """True where goals count it: a shift of 5 % should be found in ten periods."""


KINDS = (
    Kind("steady", 0.005),
    Kind("usual", 0.015),
    Kind("noisy", 0.02),
    Kind("alike", 0.015, alike=0.3),
    Kind("heavy tails", 0.02, heavy=True),
    Kind("stalls", 0.01, stalls=0.01),
    Kind("warming up", 0.01, warmth=Warmth(reported=False)),
    Kind("warming up, short periods", 0.015, warmth=Warmth(reported=False), period_s=0.25),
    Kind("warming up fast", 0.015, warmth=Warmth(0.06, 30.0)),
    Kind("warming up fast, long periods", 0.015, warmth=Warmth(0.06, 30.0), period_s=3.0),
    Kind("warming up fast, no temperature", 0.015, warmth=Warmth(0.06, 30.0, reported=False), judged=False),
    Kind("alike with heavy tails", 0.018, alike=0.3, heavy=True, judged=False),
    Kind("very alike", 0.015, alike=0.6, judged=False),
    Kind("many stalls", 0.01, stalls=0.03, judged=False),
    Kind("very noisy", 0.05, judged=False),
)


@dataclass(frozen=True, slots=True, eq=False)
class Stream:
    """The samples of a program, one per period."""

    time_s: Floats
    period_s: Floats
    power_w: Floats
    util: Floats
    temperature_c: Floats | None = None

    def shifted(self, place: int, quantity: str, share: float) -> Stream:
        """Return the stream with one quantity larger by a share from one place on."""
        factor = np.where(np.arange(len(self.time_s)) < place, 1.0, 1.0 + share)
        if quantity == "power":
            return replace(self, power_w=self.power_w * factor)
        period_s = self.period_s * factor
        return replace(self, time_s=np.cumsum(period_s), period_s=period_s)


def stream(kind: Kind, count: int, rng: np.random.Generator) -> Stream:
    """Draw so many samples of a program that does the same all the time."""
    stalled = rng.random(count) < kind.stalls
    period_s = kind.period_s * np.exp(_noise(kind, count, rng)) * np.where(stalled, 1.5, 1.0)
    time_s = np.cumsum(period_s)
    power_w = POWER_W * np.exp(_noise(kind, count, rng)) * np.where(stalled, 2 / 3, 1.0)
    temperature_c = None
    if kind.warmth is not None:
        power_w, temperature_c = _warmed(kind.warmth, time_s, power_w, rng)
    # A driver reports utilisation in whole percents.
    util = np.clip(np.round(UTIL + 0.01 * rng.standard_normal(count), 2), 0, 1)
    return Stream(time_s, period_s, power_w, util, temperature_c)


def _warmed(warmth: Warmth, time_s: Floats, power_w: Floats, rng: np.random.Generator) -> tuple[Floats, Floats | None]:
    """Return the power of a GPU that warms up, and its temperature where that is reported."""
    warmer = -warmth.share * np.exp(-time_s / warmth.over_s) + _SWAY / 2 * np.sin(2 * np.pi * time_s / _SWAY_S)
    temperature_c = np.round(65.0 + warmer / rng.uniform(*_PER_KELVIN))
    return power_w * (1 + warmer), temperature_c if warmth.reported else None


def _noise(kind: Kind, count: int, rng: np.random.Generator) -> Floats:
    from scipy.signal import lfilter

    drawn = rng.standard_t(4, count) / np.sqrt(2) if kind.heavy else rng.standard_normal(count)
    if kind.alike:
        first = rng.standard_normal()
        drawn, _ = lfilter([np.sqrt(1 - kind.alike**2)], [1, -kind.alike], drawn, zi=np.array([kind.alike * first]))
    return np.asarray(kind.noise * drawn, dtype=np.float64)


@dataclass(frozen=True, slots=True)
class Alarm:
    """The sample at which a detector reports a change, and in which quantities, where it names them."""

    place: int
    what: tuple[str, ...] | None = None


Detector = Callable[[Stream], Iterator[Alarm]]

_GPOEO_SPREAD = 0.18
"""Of per-period mean power, largest less smallest since settling over their mean, as in the released code."""
_MF_WINDOW_S = 4.0
_MF_DISTANCE = 0.10
_MF_WINDOWS = 5


def wattune(stream: Stream) -> Iterator[Alarm]:
    """Yield the alarms of `wattune.signals.change`."""
    detector = ChangeDetector()
    columns = (column.tolist() for column in (stream.time_s, stream.period_s, stream.power_w, stream.util))
    degrees = [None] * len(stream.time_s) if stream.temperature_c is None else stream.temperature_c.tolist()
    for place, (time_s, period_s, power_w, util, temperature_c) in enumerate(zip(*columns, degrees, strict=True)):
        detector = detector.add(
            ProgramSample(time_s=time_s, period_s=period_s, power_w=power_w, util=util, temperature_c=temperature_c)
        )
        if detector.change is not None:
            yield Alarm(place, detector.change.what)


def gpoeo(stream: Stream) -> Iterator[Alarm]:
    """Yield the alarms of GPOEO's rule: least and most power since settling, which never expire."""
    low = high = total = 0.0
    count = 0
    for place, power_w in enumerate(stream.power_w.tolist()):
        low, high = (min(low, power_w), max(high, power_w)) if count else (power_w, power_w)
        total, count = total + power_w, count + 1
        if (high - low) / (total / count) > _GPOEO_SPREAD:
            yield Alarm(place)
            total, count = 0.0, 0


def mf_gpoeo(stream: Stream) -> Iterator[Alarm]:
    """Yield the alarms of MF-GPOEO: distance of windows of 4 s from the first, in three of the last five.

    Of its five signals the two clocks stand still here, and memory utilisation follows the other one.
    """
    reference: tuple[float, float] | None = None
    far: list[bool] = []
    inside: list[tuple[float, float]] = []
    end_s = _MF_WINDOW_S
    values = zip(stream.time_s.tolist(), stream.power_w.tolist(), stream.util.tolist(), strict=True)
    for place, (time_s, power_w, util) in enumerate(values):
        inside.append((power_w, util))
        if time_s < end_s:
            continue
        window = sum(power_w for power_w, _ in inside) / len(inside), sum(util for _, util in inside) / len(inside)
        inside, end_s = [], time_s + _MF_WINDOW_S
        if reference is None:
            reference = window
            continue
        # Utilisation counts twice, for the memory's as well.
        power, util = (abs(a - b) / max(a, b, 1e-9) for a, b in zip(reference, window, strict=True))
        far = [*far, power + 2 * util > _MF_DISTANCE][-_MF_WINDOWS:]
        if sum(far) > _MF_WINDOWS / 2:
            yield Alarm(place)
            reference, far = None, []


DETECTORS: dict[str, Detector] = {"wattune": wattune, "gpoeo": gpoeo, "mf-gpoeo": mf_gpoeo}

QUIET_SAMPLES = 10_000
"""Per kind and seed."""
CASES = 40
"""Per kind, shift and seed."""
LEAST = 5.0
SHIFTS = (("period", 0.05), ("period", -0.05), ("power", 0.05), ("power", -0.05), ("period", 0.15), ("power", -0.15))
IN_TIME = 10
_AFTER = 100
_EARLIEST, _LATEST = 40, 240
"""Range of samples at which the shift comes: the usual values are known by then, but not for long."""


def bench_change(*, seeds: int, on_step: Callable[[str], None] | None = None) -> Bench:
    """Compare delays and false alarms of every detector on the same streams."""
    quiet: list[Row] = []
    found: list[Row] = []
    for kind in KINDS:
        if on_step is not None:
            on_step(kind.name)
        for name, detector in DETECTORS.items():
            common = {
                "policy": name,
                "noise": kind.name,
                "noise_percent": 100 * kind.noise,
                "judged": kind.judged,
            }
            quiet.append(common | _quiet_row(detector, kind, seeds))
            found += [common | _shift_row(detector, kind, shift, seeds) for shift in SHIFTS]
    return Bench(
        bench="change",
        simulated=True,
        rows=(*quiet, *found),
        goals=_goals(quiet, found),
        notes=(
            "Programs are made up: per-period values with noise, so that what changed is known.",
            f"The shift comes {_EARLIEST} to {_LATEST} periods after the start. Where a detector raised a false alarm "
            "before it, the case is left out of its delays and counted in false_alarms_before.",
            "Kinds that are not judged are harder than any goal allows for: more noise, or similar neighbours.",
            "Goals count the judged kinds of noise only.",
        ),
    )


def _quiet_row(detector: Detector, kind: Kind, seeds: int) -> dict[str, object]:
    alarms = 0
    for seed in range(seeds):
        quiet = stream(kind, QUIET_SAMPLES, np.random.default_rng((seed, KINDS.index(kind), 0)))
        alarms += sum(1 for _ in detector(quiet))
    return {
        "periods": seeds * QUIET_SAMPLES,
        "false_alarms": alarms,
        "false_alarms_per_10000": alarms / (seeds * QUIET_SAMPLES) * 10_000,
    }


def _shift_row(detector: Detector, kind: Kind, shift: tuple[str, float], seeds: int) -> dict[str, object]:
    cases, delays, named, before = 0, [], [], 0
    for seed in range(seeds):
        for case in range(CASES):
            rng = np.random.default_rng((seed, KINDS.index(kind), 1, SHIFTS.index(shift), case))
            place = int(rng.integers(_EARLIEST, _LATEST))
            played = stream(kind, place + _AFTER, rng).shifted(place, *shift)
            alarm = next(detector(played), None)
            if alarm is not None and alarm.place < place:
                before += alarm.place
                continue
            cases, before = cases + 1, before + place
            delays.append(np.inf if alarm is None else float(alarm.place - place + 1))
            if alarm is not None and alarm.what is not None:
                named.append(alarm.what == (shift[0],))
    return {
        "quantity": shift[0],
        "shift_percent": round(100 * shift[1], 6),
        "cases": cases,
        "false_alarms_before": seeds * CASES - cases,
        "periods_before": before,
        "found_in_10_percent": 100 * fmean(delay <= IN_TIME for delay in delays) if delays else None,
        "median_periods": _quantile(delays, 0.5),
        "p95_periods": _quantile(delays, 0.95),
        "named_right_percent": 100 * fmean(named) if named else None,
    }


def _quantile(delays: Sequence[float], share: float) -> float | None:
    """Return the quantile; None where so many were not found at all."""
    value = float(np.quantile(delays, share, method="higher")) if delays else np.inf
    return value if np.isfinite(value) else None


def _goals(quiet: Sequence[Row], found: Sequence[Row]) -> tuple[Goal, ...]:
    """Make the goals from the judged kinds of noise."""
    alarms = [row for row in quiet if row["policy"] == "wattune" and row["judged"]]
    worst = max(row["false_alarms_per_10000"] for row in alarms)
    mean = sum(row["false_alarms"] for row in alarms) / sum(row["periods"] for row in alarms) * 10_000
    judged = [row for row in found if row["judged"]]
    early = max(
        sum(row["false_alarms_before"] for row in rows) / sum(row["periods_before"] for row in rows) * 10_000
        for rows in _by_noise([row for row in judged if row["policy"] == "wattune"])
    )
    least = {
        name: [row for row in judged if row["policy"] == name and abs(row["shift_percent"]) == LEAST]
        for name in DETECTORS
    }
    ours = least["wattune"]
    medians = [np.inf if row["median_periods"] is None else row["median_periods"] for row in ours]
    found_of_kinds = [share for rows in _by_noise(ours) if (share := _found(rows)) is not None]
    return (
        at_least("shifts of 5 % found in ≤ 10 periods", _found(ours), 95, unit=" %"),
        at_least("shifts of 5 % found in ≤ 10 periods, worst kind", min(found_of_kinds, default=None), 95, unit=" %"),
        at_most("median periods to find a shift of 5 %, worst kind", max(medians), IN_TIME),
        Goal("false alarms per 10,000 periods", mean, "< 1", mean < 1),
        Goal("false alarms per 10,000 periods, worst kind", worst, "< 1", worst < 1),
        Goal("false alarms per 10,000 periods, soon after the start, worst kind", early, "< 1", early < 1),
        *(
            Goal(f"beside it: {name}, shifts of 5 % found in ≤ 10 periods", _found(rows), "its own rule", None)
            for name, rows in least.items()
            if name != "wattune"
        ),
    )


def _by_noise(rows: Sequence[Row]) -> list[list[Row]]:
    return [[row for row in rows if row["noise"] == noise] for noise in dict.fromkeys(row["noise"] for row in rows)]


def _found(rows: Sequence[Row]) -> float | None:
    """Return the share of cases that were found in time, over all rows."""
    cases = sum(row["cases"] for row in rows)
    return sum(row["cases"] * (row["found_in_10_percent"] or 0.0) for row in rows) / cases if cases else None
