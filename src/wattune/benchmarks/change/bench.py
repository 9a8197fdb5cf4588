"""`wattune bench change`: how soon a change of a program is found, and how often one is seen where there is none."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np

from wattune.benchmarks.change.streams import KINDS, Kind, Stream, stream
from wattune.benchmarks.result import Bench, Goal, Row, at_least, at_most
from wattune.signals.change import ChangeDetector, ProgramSample


@dataclass(frozen=True, slots=True)
class Alarm:
    """At which look a detector said that something changed, and what, where it says that."""

    place: int
    what: tuple[str, ...] | None = None


Detector = Callable[[Stream], Iterator[Alarm]]

_GPOEO_SPREAD = 0.18
"""Of per-period mean power, largest less smallest since settling over their mean, as the released code has it."""
_MF_WINDOW_S = 4.0
_MF_DISTANCE = 0.10
_MF_WINDOWS = 5


def wattune(stream: Stream) -> Iterator[Alarm]:
    """The alarms of `wattune.signals.change`."""
    watch = ChangeDetector()
    columns = (column.tolist() for column in (stream.time_s, stream.period_s, stream.power_w, stream.util))
    degrees = [None] * len(stream) if stream.temperature_c is None else stream.temperature_c.tolist()
    for place, (time_s, period_s, power_w, util, temperature_c) in enumerate(zip(*columns, degrees, strict=True)):
        look = ProgramSample(time_s=time_s, period_s=period_s, power_w=power_w, util=util, temperature_c=temperature_c)
        watch = watch.add(look)
        if watch.change is not None:
            yield Alarm(place, watch.change.what)


def gpoeo(stream: Stream) -> Iterator[Alarm]:
    """The alarms of GPOEO's rule: least and most power since settling, which never expire."""
    low = high = total = 0.0
    count = 0
    for place, power_w in enumerate(stream.power_w.tolist()):
        low, high = (min(low, power_w), max(high, power_w)) if count else (power_w, power_w)
        total, count = total + power_w, count + 1
        if (high - low) / (total / count) > _GPOEO_SPREAD:
            yield Alarm(place)
            total, count = 0.0, 0


def mf_gpoeo(stream: Stream) -> Iterator[Alarm]:
    """The alarms of MF-GPOEO's phase watch: distance of windows of 4 s from the first, in three of the last five.

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
        window = _mean(inside)
        inside, end_s = [], time_s + _MF_WINDOW_S
        if reference is None:
            reference = window
            continue
        far = [*far, _distance(reference, window) > _MF_DISTANCE][-_MF_WINDOWS:]
        if sum(far) > _MF_WINDOWS / 2:
            yield Alarm(place)
            reference, far = None, []


DETECTORS: dict[str, Detector] = {"wattune": wattune, "gpoeo": gpoeo, "mf-gpoeo": mf_gpoeo}


def _mean(values: list[tuple[float, float]]) -> tuple[float, float]:
    return sum(power_w for power_w, _ in values) / len(values), sum(util for _, util in values) / len(values)


def _distance(first: tuple[float, float], second: tuple[float, float]) -> float:
    """The sum of differences, each over the larger; utilisation counts twice, for the memory's as well."""
    power, util = (abs(a - b) / max(a, b, 1e-9) for a, b in zip(first, second, strict=True))
    return power + 2 * util


QUIET_LOOKS = 10_000
"""Per kind and seed."""
CASES = 40
"""Per kind, shift and seed."""
LEAST = 5.0
SHIFTS = (("period", 0.05), ("period", -0.05), ("power", 0.05), ("power", -0.05), ("period", 0.15), ("power", -0.15))
IN_TIME = 10
_AFTER = 100
_EARLIEST, _LATEST = 40, 240
"""Between which looks the shift comes: what is usual is known by then, and has not been for long."""


@dataclass(frozen=True, slots=True)
class ChangeCase:
    """What a detector made of one shift."""

    before: int
    """Looks that it watched before the shift, or before it raised a false alarm."""
    early: bool
    """Whether it raised one, after which its delay says nothing."""
    looks: int | None
    """How many it took; None where it was not found."""
    right: bool | None
    """Whether it named what shifted, and that alone; None where it names nothing."""


def bench_change(*, seeds: int, on_step: Callable[[str], None] | None = None) -> Bench:
    """Delays and false alarms of every detector on the same streams."""
    quiet: list[Row] = []
    found: list[Row] = []
    for kind in KINDS:
        if on_step is not None:
            on_step(kind.name)
        for name, detector in DETECTORS.items():
            quiet.append(_quiet_row(name, detector, kind, seeds))
            found += [_shift_row(name, detector, kind, shift, seeds) for shift in SHIFTS]
    return Bench(
        bench="change",
        simulated=True,
        rows=(*quiet, *found),
        goals=_goals(quiet, found),
        notes=(
            "Programs are made up: per-period values with noise, so that what changed is known.",
            f"The shift comes {_EARLIEST} to {_LATEST} periods after the start. Where a detector raised a false alarm "
            "before it, the case is left out of its delays and counted in false_alarms_before.",
            "Kinds not marked promised are beyond what is promised: more noise, or neighbours that are much alike.",
            "Goals are over the kinds of noise marked promised; the others show what is left beyond them.",
        ),
    )


def _quiet_row(name: str, detector: Detector, kind: Kind, seeds: int) -> Row:
    alarms = 0
    for seed in range(seeds):
        quiet = stream(kind, QUIET_LOOKS, np.random.default_rng((seed, _number(kind), 0)))
        alarms += sum(1 for _ in detector(quiet))
    return {
        "policy": name,
        **_kind(kind),
        "periods": seeds * QUIET_LOOKS,
        "false_alarms": alarms,
        "false_alarms_per_10000": alarms / (seeds * QUIET_LOOKS) * 10_000,
    }


def _shift_row(name: str, detector: Detector, kind: Kind, shift: tuple[str, float], seeds: int) -> Row:
    quantity, share = shift
    number = SHIFTS.index(shift)
    rng = (
        np.random.default_rng((seed, _number(kind), 1, number, case)) for seed in range(seeds) for case in range(CASES)
    )
    played = [_case(detector, kind, shift, one) for one in rng]
    cases = [case for case in played if not case.early]
    looks = [np.inf if case.looks is None else float(case.looks) for case in cases]
    named = [case.right for case in cases if case.right is not None and case.looks is not None]
    return {
        "policy": name,
        **_kind(kind),
        "quantity": quantity,
        "shift_percent": round(100 * share, 6),
        "cases": len(cases),
        "false_alarms_before": len(played) - len(cases),
        "periods_before": sum(case.before for case in played),
        "found_in_10_percent": 100 * float(np.mean([one <= IN_TIME for one in looks])) if looks else None,
        "median_periods": _quantile(looks, 0.5),
        "p95_periods": _quantile(looks, 0.95),
        "named_right_percent": 100 * float(np.mean(named)) if named else None,
    }


def _case(detector: Detector, kind: Kind, shift: tuple[str, float], rng: np.random.Generator) -> ChangeCase:
    """What came of one shift."""
    place = int(rng.integers(_EARLIEST, _LATEST))
    played = stream(kind, place + _AFTER, rng).shifted(place, *shift)
    for alarm in islice(detector(played), 1):
        if alarm.place < place:
            return ChangeCase(alarm.place, True, None, None)
        right = None if alarm.what is None else alarm.what == (shift[0],)
        return ChangeCase(place, False, alarm.place - place + 1, right)
    return ChangeCase(place, False, None, None)


def _goals(quiet: Sequence[Row], found: Sequence[Row]) -> tuple[Goal, ...]:
    ours = _least([row for row in found if row["policy"] == "wattune"])
    alarms = [row for row in quiet if row["policy"] == "wattune" and row["promised"]]
    worst = max(row["false_alarms_per_10000"] for row in alarms)
    early = _early([row for row in found if row["policy"] == "wattune" and row["promised"]])
    mean = sum(row["false_alarms"] for row in alarms) / sum(row["periods"] for row in alarms) * 10_000
    return (
        at_least("shifts of 5 % found in ≤ 10 periods", _found(ours), 95, unit=" %"),
        at_least("shifts of 5 % found in ≤ 10 periods, worst kind", _worst(ours), 95, unit=" %"),
        at_most("median periods to find a shift of 5 %, worst kind", max(_known(ours, "median_periods")), IN_TIME),
        Goal("false alarms per 10,000 periods", mean, "< 1", mean < 1),
        Goal("false alarms per 10,000 periods, worst kind", worst, "< 1", worst < 1),
        Goal("false alarms per 10,000 periods, soon after the start, worst kind", early, "< 1", early < 1),
        *(_peer(name, found) for name in DETECTORS if name != "wattune"),
    )


def _peer(name: str, found: Sequence[Row]) -> Goal:
    theirs = _found(_least([row for row in found if row["policy"] == name]))
    return Goal(f"beside it: {name}, shifts of 5 % found in ≤ 10 periods", theirs, "its own rule", None)


def _found(rows: Sequence[Row]) -> float | None:
    """The share of cases that were found in time, over all rows."""
    cases = sum(row["cases"] for row in rows)
    return sum(row["cases"] * (row["found_in_10_percent"] or 0.0) for row in rows) / cases if cases else None


def _least(rows: Sequence[Row]) -> list[Row]:
    """Return the rows of the least shift, for the kinds of noise that goals count."""
    return [row for row in rows if row["promised"] and abs(row["shift_percent"]) == LEAST]


def _worst(rows: Sequence[Row]) -> float | None:
    """The same for the kind of noise that has the least of it."""
    kinds = {row["noise"] for row in rows}
    shares = [_found([row for row in rows if row["noise"] == kind]) for kind in kinds]
    return min((share for share in shares if share is not None), default=None)


def _early(rows: Sequence[Row]) -> float:
    """False alarms per 10,000 periods before the shift, while little was seen: of the kind that has the most."""
    kinds = {row["noise"] for row in rows}
    groups = [[row for row in rows if row["noise"] == kind] for kind in kinds]
    sums = [
        [float(sum(row[f"{what}_before"] for row in group)) for what in ("false_alarms", "periods")] for group in groups
    ]
    return max(alarms / periods * 10_000 for alarms, periods in sums)


def _known(rows: Sequence[Row], column: str) -> list[float]:
    return [np.inf if row[column] is None else row[column] for row in rows]


def _kind(kind: Kind) -> dict[str, object]:
    return {"noise": kind.name, "noise_percent": 100 * kind.noise, "promised": kind.judged}


def _number(kind: Kind) -> int:
    return KINDS.index(kind)


def _quantile(looks: Sequence[float], share: float) -> float | None:
    """None where so many were not found at all."""
    if not looks:
        return None
    value = float(np.quantile(looks, share, method="higher"))
    return value if np.isfinite(value) else None
