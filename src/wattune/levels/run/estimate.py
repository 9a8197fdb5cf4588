"""Values with errors: means over windows, and units of work. Errors are half-widths of 95 % intervals."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import hypot, sqrt

from wattune.core.measurement import SIGMAS_95, Measurement
from wattune.core.window import Window

LEAST_ERROR = 1e-4
"""Least relative error of a step time: clocks and programs drift."""
COUNTER_ERROR = 0.001
"""Relative error of a difference of two powers by one counter, beyond the errors of its windows. Counters of one GPU
model differ by up to some percent, but alike at every power. Estimated."""


@dataclass(frozen=True, slots=True)
class EstimateWithError:
    """A value and the half-width of its 95 % interval, where that is known."""

    value: float
    error: float | None = None

    @property
    def share(self) -> float | None:
        return None if self.error is None or self.value == 0 else self.error / abs(self.value)

    @property
    def percent(self) -> float:
        return 100 * self.value

    @property
    def negative(self) -> EstimateWithError:
        return EstimateWithError(-self.value, self.error)

    def excess(self, reference: EstimateWithError) -> EstimateWithError:
        """Return by how much it exceeds another value, as a share of that."""
        ratio, share = self.value / reference.value, both(self.share, reference.share)
        return EstimateWithError(ratio - 1, None if share is None else ratio * share)


def both(first: float | None, second: float | None) -> float | None:
    """Combine two independent errors; unknown where one is."""
    return None if first is None or second is None else hypot(first, second)


def unit_of(step_time: EstimateWithError, power: EstimateWithError) -> Measurement:
    """Return time and energy of a unit of work."""
    energy_j, share = step_time.value * power.value, both(step_time.share, power.share)
    return Measurement(step_time.value, energy_j, step_time.error, None if share is None else energy_j * share)


def with_counter_error(more: float, error: float | None, counter: float) -> EstimateWithError:
    """Return the saving by a share of energy that was spent more, whose error does not have the counter's own yet."""
    return EstimateWithError(-more, None if error is None else hypot(error, (1 + more) * counter))


def pooled_step_time(windows: Sequence[Window]) -> EstimateWithError | None:
    """Average the step time of windows; None where none has one."""
    return _averaged([(one.step_time_s, one.step_time_error_s, one.cost.time_s) for one in windows if one.step_time_s])


def pooled_power(windows: Sequence[Window]) -> EstimateWithError | None:
    """Average the power of windows; None where none has a length."""
    costs = [one.cost for one in windows if one.cost.time_s > 0]
    shares = [None if one.energy_error_j is None else one.energy_error_j / one.time_s for one in costs]
    return _averaged([(one.power_w, error, one.time_s) for one, error in zip(costs, shares, strict=True)])


def _averaged(known: Sequence[tuple[float, float | None, float]]) -> EstimateWithError | None:
    """Average values with their errors and lengths, weighted by the errors or, without these, by the lengths.

    The error grows where the values differ by more than their errors allow.
    """
    if not known:
        return None
    values = [value for value, _, _ in known]
    errors = [max(error, LEAST_ERROR * value) for value, error, _ in known if error is not None]
    if len(errors) < len(known) or not all(errors):
        seconds = sum(time_s for *_, time_s in known)
        weights = [time_s / seconds if seconds > 0 else 1 / len(known) for *_, time_s in known]
        return EstimateWithError(_dot(weights, values))
    weights = [error**-2 for error in errors]
    mean = _dot(weights, values) / sum(weights)
    error = sum(weights) ** -0.5
    if len(known) > 1:
        chi2 = _dot(weights, [SIGMAS_95**2 * (value - mean) ** 2 for value in values])
        error *= sqrt(max(chi2 / (len(known) - 1), 1.0))
    return EstimateWithError(mean, error)


def _dot(weights: Sequence[float], values: Sequence[float]) -> float:
    return sum(weight * value for weight, value in zip(weights, values, strict=True))
