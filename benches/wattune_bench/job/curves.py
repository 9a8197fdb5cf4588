"""Costs of policies for the recurrences of a job, beside the best fixed choice.

Notation: c(s, t) cost of recurrence t with seed s; c*(t) what the best fixed choice (the oracle) pays in expectation;
regret after t recurrences R(s, t) = Σ c(s, ·) − Σ c*(·), shown as runs of the oracle (R / mean c*) or as a share of
what it has paid by then (R / Σ c*). Lines are means over seeds; the band around one holds the middle 80 % of the seeds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike, NDArray

from wattune.levels.job.view.charts import count_axis, value_axis
from wattune.levels.job.view.view_model import amount
from wattune.render.chart import Axis, Chart, Mark, Point, ReferenceLine, Scale, Series, Shape, Spread, Tone
from wattune.render.quantity import number, unit_for

Array = NDArray[np.float64]

BAND = (10.0, 90.0)
"""The percentiles of the seeds between which a band lies."""
_MOST_POINTS = 240
"""More than this cannot be distinguished on a screen; longer curves show every second, third … recurrence."""
_FLOOR_PERCENT = 0.1
"""Regret below this share is drawn as this on an axis that goes by factors."""

_TONES = {
    "wattune": Tone.BLUE,
    "zeus": Tone.ORANGE,
    "zeus-package": Tone.GOLD,
    "default": Tone.GREY,
    "grid": Tone.PURPLE,
}
_OTHER_TONES = (Tone.GREEN, Tone.SKY, Tone.GOLD)
_MARKED = 8
"""About how many points of a line carry its shape."""
_DASHED = frozenset({"default", "zeus-package"})


@dataclass(frozen=True, slots=True, eq=False)
class PolicyCurve:
    """Costs of one policy, with a row per seed and a column per recurrence; NaN once a seed was stuck."""

    name: str
    costs: Array

    def __post_init__(self) -> None:
        costs = np.atleast_2d(np.asarray(self.costs, dtype=float))
        if costs.ndim != 2 or costs.size == 0:
            raise ValueError(f"{self.name}: costs are seeds by recurrences, at least one each, not {costs.shape}")
        object.__setattr__(self, "costs", costs)

    @property
    def recurrences(self) -> int:
        return int(self.costs.shape[1])


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class PolicyCurves:
    """All policies on one job and GPU, and the cost of the best fixed choice per recurrence."""

    workload: str
    gpu: str
    simulated: bool
    curves: tuple[PolicyCurve, ...]
    oracle: ArrayLike
    """One cost, or one per recurrence where the job changes on the way."""
    unit: str = "J"
    """The unit of a cost; empty for money."""

    def __post_init__(self) -> None:
        if not self.curves:
            raise ValueError(f"{self.workload}: there is no policy to show")
        oracle = np.broadcast_to(np.asarray(self.oracle, dtype=float), (self.recurrences,))
        if not (np.isfinite(oracle).all() and (oracle > 0).all()):
            raise ValueError(f"{self.workload}: the oracle's cost is a positive number")
        object.__setattr__(self, "oracle", oracle)

    @property
    def recurrences(self) -> int:
        return max(curve.recurrences for curve in self.curves)

    @property
    def oracle_costs(self) -> Array:
        return np.asarray(self.oracle, dtype=float)

    def regret(self, curve: PolicyCurve) -> Array:
        """Return the cost up to each recurrence beyond the oracle: (seeds, recurrences)."""
        return np.asarray(np.cumsum(curve.costs - self.oracle_costs[: curve.recurrences], axis=1))

    def regret_percent(self, curve: PolicyCurve) -> Array:
        """Return the same as a share of the cost of the oracle until then."""
        return np.asarray(100 * self.regret(curve) / np.cumsum(self.oracle_costs[: curve.recurrences]))

    def regret_after(self, curve: PolicyCurve, recurrences: int) -> float | None:
        """Return the mean regret in percent after so many recurrences; None where some seed did not get there."""
        if not 1 <= recurrences <= curve.recurrences:
            return None
        mean = float(self.regret_percent(curve)[:, recurrences - 1].mean())
        return mean if np.isfinite(mean) else None


def cost_chart(view: PolicyCurves) -> Chart:
    """Draw the cost of each recurrence by policy, with the oracle as a line."""
    # A band around every line would hide the lines: recurrences differ much from seed to seed.
    means = [curve.costs.mean(axis=0) for curve in view.curves]
    known = np.concatenate([*means, view.oracle_costs])
    known = known[np.isfinite(known)]
    unit = unit_for(known.tolist(), view.unit)
    series = tuple(
        _line(curve.name, curve.costs * unit.factor, place=place, banded=False, tip=_cost_tip(view, curve.name))
        for place, curve in enumerate(view.curves)
    )
    constant = bool(np.ptp(view.oracle_costs) == 0)
    at = float(view.oracle_costs[0]) * unit.factor
    return Chart(
        title=f"Cost of each recurrence: {view.workload}",
        subtitle=_subtitle(view, "all its runs together, failed ones and profiling included; mean over seeds"),
        x=count_axis("recurrence", view.recurrences),
        y=value_axis("cost", unit.symbol or None, (known * unit.factor).tolist()),
        series=series if constant else (*series, _oracle_steps(view, unit.factor)),
        rules=(ReferenceLine(at, f"oracle {amount(float(view.oracle_costs[0]), view.unit)}"),) if constant else (),
    )


def regret_chart(view: PolicyCurves) -> Chart:
    """Draw the cost of each policy beyond the oracle so far, in runs of the oracle."""
    run = float(view.oracle_costs.mean())
    regrets = [view.regret(curve) / run for curve in view.curves]
    most = _most_shown(view.curves, regrets)
    series = tuple(
        _below(most, _line(_with_end(view, curve), regret, place=place, banded=True, tip=_regret_tip(view, curve)))
        for place, (curve, regret) in enumerate(zip(view.curves, regrets, strict=True))
    )
    return Chart(
        title=f"Regret so far: {view.workload}",
        subtitle=_subtitle(view, "paid beyond the oracle; mean and middle 80 % of seeds"),
        x=count_axis("recurrence", view.recurrences),
        y=Axis(title="regret", unit="runs of the oracle"),
        series=series,
        rules=(ReferenceLine(0.0, "oracle"),),
    )


def mean_regret_chart(views: Sequence[PolicyCurves]) -> Chart:
    """Draw regret in percent of the oracle's cost, mean over jobs, of policies that all jobs have."""
    shared = [curve.name for curve in views[0].curves if all(_named(view, curve.name) for view in views)]
    end = min(curve.recurrences for view in views for curve in view.curves)
    series = []
    for place, name in enumerate(shared):
        curves = [view.regret_percent(_named(view, name)[0])[:, :end].mean(axis=0) for view in views]
        floored = np.maximum(np.stack(curves), _FLOOR_PERCENT)
        # Jobs differ by so much that a band over them would hide every line.
        series.append(_line(name, floored, place=place, banded=False, tip=_percent_tip(name)))
    simulated = any(view.simulated for view in views)
    return Chart(
        title=f"Regret after so many recurrences, mean of {len(views)} jobs",
        subtitle=f"{'simulated; ' if simulated else ''}percent of the oracle's cost by then",
        x=count_axis("recurrence", end),
        y=Axis(title="regret", unit="%", scale=Scale.LOG),
        series=tuple(series),
    )


def _named(view: PolicyCurves, name: str) -> list[PolicyCurve]:
    return [curve for curve in view.curves if curve.name == name]


def _line(name: str, values: Array, *, place: int, banded: bool, tip: Callable[[int, float], str]) -> Series:
    """Return the mean over rows as a line, unknown where a row is, with its band where there are several rows."""
    mean = values.mean(axis=0)
    kept = _kept(values.shape[1])
    points = tuple(
        Point(t + 1, float(mean[t]), tip(t, float(mean[t]))) if np.isfinite(mean[t]) else Point(t + 1, None)
        for t in kept
    )
    policy = name.partition(":")[0]
    every = max(len(kept) // _MARKED, 1)
    return Series(
        name=name,
        points=points,
        mark=Mark.LINE_AND_POINTS,
        tone=_TONES.get(policy, _OTHER_TONES[place % len(_OTHER_TONES)]),
        dashed=policy in _DASHED,
        shape=tuple(Shape)[place % len(Shape)],
        every=every,
        first=place * every // len(Shape) % every,
        spread=_band(values, kept) if banded and len(values) > 1 and len(kept) > 1 else (),
    )


def _band(values: Array, kept: Iterable[int]) -> tuple[Spread, ...]:
    finite = [t for t in kept if np.isfinite(values[:, t]).all()]
    low, high = np.percentile(values[:, finite], BAND, axis=0)
    return tuple(Spread(t + 1, float(low[i]), float(high[i])) for i, t in enumerate(finite))


def _kept(recurrences: int) -> list[int]:
    step = -(-recurrences // _MOST_POINTS)
    kept = list(range(0, recurrences, step))
    return kept if kept[-1] == recurrences - 1 else [*kept, recurrences - 1]


def _oracle_steps(view: PolicyCurves, factor: float) -> Series:
    points = tuple(Point(t + 1, float(view.oracle_costs[t]) * factor) for t in _kept(view.recurrences))
    return Series(name="oracle", points=points, mark=Mark.STEPS, tone=Tone.GREEN)


def _with_end(view: PolicyCurves, curve: PolicyCurve) -> str:
    """Return the policy's name with its regret at the end."""
    share = view.regret_after(curve, curve.recurrences)
    return f"{curve.name}: stuck" if share is None else f"{curve.name}: {number(share)} %"


def _most_shown(curves: Sequence[PolicyCurve], regrets: Sequence[Array]) -> float:
    """Return the upper end of the chart: the default's line rises without end and may leave it, the others may not."""
    tops = [_top(regret) for curve, regret in zip(curves, regrets, strict=True) if curve.name != "default"]
    return 1.25 * max(tops) if tops and max(tops) > 0 else np.inf


def _top(regret: Array) -> float:
    finite = regret[np.isfinite(regret)]
    return float(finite.max()) if finite.size else 0.0


def _below(most: float, series: Series) -> Series:
    """Return the series as far as it stays in the chart."""
    points = tuple(point for point in series.points if point.y is None or point.y <= most)
    return replace(series, points=points, spread=tuple(own for own in series.spread if own.high <= most))


def _cost_tip(view: PolicyCurves, name: str) -> Callable[[int, float], str]:
    def tip(t: int, _: float) -> str:
        cost = float(_named(view, name)[0].costs[:, t].mean())
        return f"{name}, recurrence {t + 1}: {amount(cost, view.unit)}"

    return tip


def _regret_tip(view: PolicyCurves, curve: PolicyCurve) -> Callable[[int, float], str]:
    def tip(t: int, runs: float) -> str:
        return f"{curve.name} after {t + 1}: {number(runs)} runs, {number(view.regret_after(curve, t + 1))} %"

    return tip


def _percent_tip(name: str) -> Callable[[int, float], str]:
    return lambda t, value: f"{name} after {t + 1}: {number(value)} %"


def _subtitle(view: PolicyCurves, what: str) -> str:
    return f"{'simulated ' if view.simulated else ''}{view.gpu}; {what}"
