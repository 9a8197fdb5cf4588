"""What is believed of every setting after some were measured.

Notation
    y, m    logarithm of a measured time (or power) and its standard error
    r       how far a single setting lies off its curve (rₜ, rₚ of `curve_bank`)
    ρ       r²/(r² + m²): how far a measured setting is believed to lie off its curve
    v       logarithm of the objective's value, with what breaking one of its limits adds
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import log

import numpy as np

from wattune.core.frontier import History, Trial
from wattune.core.measurement import SIGMAS_95, Measurement
from wattune.core.objective import Objective, PowerBudget
from wattune.core.setting import Setting
from wattune.response.cost_values import values
from wattune.response.curve_ensemble import CurveEnsemble, Floats
from wattune.response.normal_gain import expected_gain
from wattune.response.repeats import RepeatedPoint

BREACH = 30.0
"""By how many percent a setting gets dearer for each percent by which it breaks the limit of time or power."""

_FAR = 100.0
"""A logarithm behind which nothing is gained."""

_TINY = 1e-300
_STEP = 1e-3


@dataclass(frozen=True, slots=True, eq=False)
class CurvePosterior:
    """What each curve that is still likely says of every setting: (curves, settings), settings ascending."""

    settings: tuple[Setting, ...]
    windows: Floats
    """(settings,): how often each was measured."""
    weights: Floats
    """(curves,): how likely each is; together 1."""
    log_time: Floats
    log_power: Floats
    value: Floats
    """v"""
    doubt: Floats
    """Standard error of v, the curve given."""
    time_doubt: Floats
    power_doubt: Floats

    @property
    def mean(self) -> Floats:
        """(settings,): v, as expected."""
        return np.asarray(self.weights @ self.value)

    def incumbent(self, allowed: Floats) -> int:
        """The measured setting that is thought best, among those allowed where one of them was measured."""
        measured = self.windows > 0
        eligible = measured & (allowed > 0)
        return int(np.argmin(np.where(eligible if eligible.any() else measured, self.mean, np.inf)))

    def gains(self, b: int) -> Floats:
        """(settings,): what one more window at each is expected to lower v by, if b were held otherwise."""
        apart = self.value[:, [b]] - self.value
        gain = self.weights @ expected_gain(apart, np.hypot(self.doubt, self.doubt[:, [b]]))
        return np.asarray(np.where(self.windows > 0, self._gains_again(b), gain))

    def _gains_again(self, b: int) -> Floats:
        """The same for settings that were measured: another window shows only by how much the last ones erred.

        It takes the error of the mean from m/√n to m/√(n+1), and so moves the mean by m/√n·√(1/(n+1)).
        """
        here = np.arange(len(self.settings)) == b
        runner_up = np.where((self.windows > 0) & ~here, self.mean, self.mean[b] + _FAR).min()
        behind = np.where(here, self.mean[b] - runner_up, self.mean[b] - self.mean)
        return expected_gain(behind, (self.weights @ self.doubt) / np.sqrt(self.windows + 1.0))

    def excess(self, b: int) -> Floats:
        """(settings,): by which share each is dearer than b, nothing where it is cheaper."""
        return np.asarray(self.weights @ np.expm1(np.clip(self.value - self.value[:, [b]], 0.0, 5.0)))

    def costs(self) -> History[Setting]:
        """A trial per setting: what it is believed to cost, with the error of that belief."""
        time, power = self.weights @ self.log_time, self.weights @ self.log_power
        time_error = self._error(self.log_time - time, self.time_doubt)
        energy_error = self._error(
            self.log_time + self.log_power - time - power, np.hypot(self.time_doubt, self.power_doubt)
        )
        times_s, energies_j = np.exp(time), np.exp(time + power)
        return tuple(
            Trial(setting, Measurement(time_s, energy_j, time_s * time_share, energy_j * energy_share))
            for setting, time_s, energy_j, time_share, energy_share in zip(
                self.settings,
                times_s.tolist(),
                energies_j.tolist(),
                time_error.tolist(),
                energy_error.tolist(),
                strict=True,
            )
        )

    def _error(self, off: Floats, doubt: Floats) -> Floats:
        """(settings,): half-width of the 95 % interval, from how the curves differ and what each leaves open."""
        return np.asarray(SIGMAS_95 * np.sqrt(self.weights @ (off**2 + doubt**2)))


def believed(
    ensemble: CurveEnsemble,
    settings: tuple[Setting, ...],
    points: Mapping[Setting, RepeatedPoint],
    *,
    weights: Floats,
    level: Floats,
    top_w: float | None,
    objective: Objective,
    reference: Measurement | None,
) -> CurvePosterior:
    """The belief: each curve at its level of time, drawn towards what was measured as far as ρ says."""
    some = [points.get(setting) for setting in settings]
    log_time, time_doubt = _drawn(
        ensemble.log_time + level[:, None],
        ensemble.time_spread,
        [None if point is None else (point.log_time, point.time_error) for point in some],
    )
    log_power, power_doubt = _drawn(
        ensemble.log_power + (log(top_w) if top_w else 0.0),
        ensemble.power_spread,
        [None if point is None else (point.log_power, point.power_error) for point in some],
    )

    def costly(log_power: Floats) -> Floats:
        found = values(objective, np.exp(log_time), np.exp(log_time + log_power))
        breach = _breach(objective, reference, log_time, log_power)
        return np.asarray(np.log(np.maximum(found, _TINY)) + BREACH * breach)

    value = costly(log_power)
    by_power = (costly(log_power + _STEP) - value) / _STEP
    doubt = np.hypot(time_doubt, by_power * power_doubt)
    windows = np.array([0.0 if point is None else point.windows for point in some])
    return CurvePosterior(settings, windows, weights, log_time, log_power, value, doubt, time_doubt, power_doubt)


def _drawn(curve: Floats, spread: Floats, points: Sequence[tuple[float, float] | None]) -> tuple[Floats, Floats]:
    """What each curve says of each setting after its measurement (y, m), and the standard error.

    A curve that fits worse than its spread says is believed less than its spread says.
    """
    said, doubt = curve.copy(), np.repeat(spread[:, None], curve.shape[1], axis=1)
    places = [place for place, point in enumerate(points) if point is not None]
    if places:
        found, error = (np.array(column) for column in zip(*(point for point in points if point), strict=True))
        off = found - curve[:, places]
        wide = np.maximum(spread**2, np.mean(off**2, axis=1))[:, None]
        trust = wide / (wide + error**2)
        said[:, places] += trust * off
        doubt[:, places] = np.sqrt(trust) * error
    return said, doubt


def _breach(objective: Objective, reference: Measurement | None, log_time: Floats, log_power: Floats) -> Floats | float:
    """By how much each setting breaks a limit of the objective, as a logarithm.

    Without a reference, the highest setting stands for it.
    """
    if isinstance(objective, PowerBudget):
        return np.asarray(np.clip(log_power - log(max(objective.watts, _TINY)), 0.0, None))
    limit_s = objective.limit_s(reference)
    if limit_s is not None:
        return np.asarray(np.clip(log_time - log(max(limit_s, _TINY)), 0.0, None))
    slower = objective.limit_s(Measurement(1.0, 1.0))
    if slower is None:
        return 0.0
    return np.asarray(np.clip(log_time - log_time[:, -1:] - log(slower), 0.0, None))
