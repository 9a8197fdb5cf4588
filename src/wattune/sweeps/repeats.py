"""Settings that were measured more than once: their means, how far measurements scatter, and what is within a limit.

Notation: t times of one choice; n how many; σ the relative standard deviation of the time, or of the energy, of one
measurement, pooled over all choices in logarithms with ν = Σ(n − 1) degrees of freedom. A prior of `PRIOR_DOF` degrees
at `PRIOR_NOISE` keeps two runs that agree by chance from passing for exact ones. The quantile of Student's t replaces
the normal one (expansion 26.7.5 of Abramowitz and Stegun).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from math import hypot, log, sqrt
from statistics import NormalDist, fmean

from wattune.core.frontier import C, History, Trial
from wattune.core.measurement import SIGMAS_95, Measurement

CONFIDENCE = 0.95
"""How sure a recommended setting must be within its slowdown limit, where it is known how far times scatter."""
PRIOR_NOISE = 0.002
PRIOR_DOF = 2.0

_ONE_SIDED = NormalDist().inv_cdf(CONFIDENCE)


def merged(history: Iterable[Trial[C]]) -> History[C]:
    """Return one trial per choice, in the order of their first: the mean of its measurements.

    As soon as one choice was measured twice, the errors of all hold how far measurements scatter, also of those that
    were measured once.
    """
    costs: dict[C, list[Measurement]] = {}
    for trial in history:
        costs.setdefault(trial.choice, []).append(trial.cost)
    time_noise = _noise([[cost.time_s for cost in of_one] for of_one in costs.values()])
    energy_noise = _noise([[cost.energy_j for cost in of_one] for of_one in costs.values()])
    return tuple(Trial(choice, _mean(of_one, time_noise, energy_noise)) for choice, of_one in costs.items())


def certainty(cost: Measurement, reference: Measurement, *, slowdown: float) -> float | None:
    """Return the probability that a cost is within the slowdown limit; None where the errors are not known."""
    error = _ratio_error(cost, reference)
    if error is None:
        return None
    ratio, limit = cost.time_s / reference.time_s, 1 + slowdown
    return NormalDist(ratio, error).cdf(limit) if error > 0 else float(ratio <= limit)


def is_within(cost: Measurement, reference: Measurement, *, slowdown: float) -> bool:
    """Return whether a cost is within the slowdown limit, surely so where errors are known."""
    excess_s = cost.time_s - (1 + slowdown) * reference.time_s
    error = _ratio_error(cost, reference)
    return excess_s <= 0 if error is None else excess_s + _ONE_SIDED * error * reference.time_s <= 0


def _ratio_error(cost: Measurement, reference: Measurement) -> float | None:
    """Return the standard error of the time over that of the reference; none for the reference itself."""
    if cost is reference:
        return 0.0
    if cost.time_error_s is None or reference.time_error_s is None or not cost.time_s or not reference.time_s:
        return None
    shares = hypot(cost.time_error_s / cost.time_s, reference.time_error_s / reference.time_s)
    return shares / SIGMAS_95 * cost.time_s / reference.time_s


def _noise(groups: Iterable[list[float]]) -> float | None:
    """Return σ, widened for the few degrees of freedom; None where nothing was measured twice."""
    squares, degrees = PRIOR_DOF * PRIOR_NOISE**2, 0
    for group in groups:
        logs = [log(value) for value in group if value > 0]
        if len(logs) > 1:
            middle = fmean(logs)
            squares += sum((value - middle) ** 2 for value in logs)
            degrees += len(logs) - 1
    if not degrees:
        return None
    total = PRIOR_DOF + degrees
    return sqrt(squares / total) * _student(_ONE_SIDED, total) / _ONE_SIDED


def _student(z: float, degrees: float) -> float:
    """Return the quantile of Student's t where the normal one is z."""
    first, second = (z**3 + z) / 4, (5 * z**5 + 16 * z**3 + 3 * z) / 96
    return z + first / degrees + second / degrees**2


def _mean(costs: list[Measurement], time_noise: float | None, energy_noise: float | None) -> Measurement:
    total = costs[0]
    for cost in costs[1:]:
        total += cost
    mean = total / len(costs) if len(costs) > 1 else total

    def with_scatter(value: float, error: float | None, noise: float | None) -> float | None:
        return error if noise is None else hypot(SIGMAS_95 * noise * value / sqrt(len(costs)), error or 0.0)

    return replace(
        mean,
        time_error_s=with_scatter(mean.time_s, mean.time_error_s, time_noise),
        energy_error_j=with_scatter(mean.energy_j, mean.energy_error_j, energy_noise),
    )
