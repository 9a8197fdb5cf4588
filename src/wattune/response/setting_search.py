"""Search for the power limit or core clock that is best for an objective.

Every measurement weights the curves of `ensemble`, and their predictions decide. The first window is at the
highest setting, or at the optimum of a similar profile. Each further one is where the expected gain is largest; the
search ends when the gain is less than a window costs. So settings that are certainly worse are never measured.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from math import log, sqrt

import numpy as np

from wattune.core.frontier import History
from wattune.core.measurement import Measurement
from wattune.core.objective import Objective
from wattune.core.setting import Setting
from wattune.response.ensemble import Ensemble, jobs_at
from wattune.response.evidence import trial_evidence
from wattune.response.likelihood import likelihood, observed_at, spread_likelihood
from wattune.response.points import ClockPoint, PointScale
from wattune.response.posterior import CurvePosterior, curve_posterior
from wattune.response.program_curves import program_curves
from wattune.response.statistics import Floats, likelihood_weights

SWITCH_COST = 0.2
"""Cost of a switch and its warm-up, in windows: a gain that saves less while the setting is held is not worth it."""

HORIZON = 100.0
"""Windows for which the setting will be held, where nothing is known: eight minutes of five-second windows."""

SIMILAR_SHAPE, SIMILAR_POWER = 0.03, 0.10
"""Differences of curves of batch sizes one octave apart, in shape and in the level of power, as shares: about what
public tables show (Zeus, NSDI'23)."""

LEAST_OCTAVES = 0.05
"""Distance of two profiles of the same batch size, since two days are not exactly alike either."""

STEP_ASIDE, NEAR = 0.05, 0.26
"""Least and largest distance from the best setting of one that is measured to check the curve beside it, as shares."""

CERTAINLY_WORSE = 0.1
"""A setting whose expected value (its logarithm) exceeds the best by this is not measured."""

SURPRISE = 5e-4
"""Expected saving, as a share, of a setting that the curves predict to cost more: of twenty such settings in recorded
tables about one costs a percent or more less than what the curves would hold."""

_NEGLIGIBLE = 1e-5
"""Curves whose likelihood is below this share of the highest are left out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SimilarProfile:
    """A profile of another batch size, or of the same one on another day or GPU model."""

    trials: History[Setting]
    octaves: float
    """Distance in doublings of the batch size; another GPU model counts as two."""
    max_power_w: float | None = None
    """Highest limit of one GPU of the model it was measured on; None for the same model."""
    gpus: int | None = None
    """Number of GPUs it was measured on; None for the same number."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingSearch:
    """Proposes settings until the best is known well enough; a `Searcher[Setting]`.

    The costs in the history are those of equal amounts of work: an iteration, or an epoch. A setting may be in the
    history more than once; then each of its windows counts.
    """

    objective: Objective
    similar: tuple[SimilarProfile, ...] = ()
    reference: Measurement | None = None
    """Cost of the same work at the default, where known; else the highest setting is the reference."""
    gpus: int = 1
    """Number of GPUs that have each setting; costs are their sum."""
    max_power_w: float | None = None
    """Highest limit of one GPU; None takes the highest limit among the settings."""
    limit_w: float | None = None
    """Limit of one GPU that holds where a setting names none; None is the highest."""
    max_mhz: int | None = None
    """Highest core clock; None takes the highest among the settings."""
    horizon: float = HORIZON
    """Windows for which the setting will be held."""

    def propose(self, candidates: Sequence[Setting], history: History[Setting]) -> Setting | None:
        """Return the setting to measure next, perhaps again; None where the best is known."""
        if not candidates:
            return None
        if not _measured(history):
            return self._first(candidates)
        posterior = self._posterior(candidates, history)
        allowed = _among(candidates, posterior.settings)
        b = posterior.incumbent(allowed)
        worth = np.where(allowed > 0, posterior.gains(b) - posterior.excess(b) / self.horizon, -np.inf)
        best = int(np.argmax(worth))
        if worth[best] > SWITCH_COST / self.horizon:
            return posterior.settings[best]
        return _unmeasured_neighbour(posterior, b, allowed) or self._surprise(posterior, b, allowed)

    def _surprise(self, posterior: CurvePosterior, b: int, allowed: Floats) -> Setting | None:
        """Return the cheapest setting never measured, where a window costs less than a surprise may save.

        One beside a measured setting cannot surprise.
        """
        level = np.array([_level(setting) for setting in posterior.settings])
        aside = np.abs(level[:, None] / level[None, posterior.windows > 0] - 1.0).min(axis=1)
        new = (allowed > 0) & (aside >= STEP_ASIDE)
        cost = np.where(new, posterior.excess(b), np.inf)
        place = int(np.argmin(cost))
        return posterior.settings[place] if cost[place] < SURPRISE * self.horizon else None

    def best(self, candidates: Sequence[Setting], history: History[Setting]) -> Setting | None:
        """Return the measured setting of least expected value; None before anything was measured."""
        if not _measured(history):
            return None
        posterior = self._posterior(candidates, history)
        return posterior.settings[posterior.incumbent(_among(candidates, posterior.settings))]

    def settled(self, candidates: Sequence[Setting], history: History[Setting]) -> History[Setting]:
        """Return a trial for each measured setting with its expected cost, given all measurements: a profile to keep.

        These scatter less than the windows, so the best of them is not best by chance.
        """
        measured = _measured(history)
        return tuple(trial for trial in self.curve(candidates, history) if trial.choice in measured)

    def curve(self, candidates: Sequence[Setting], history: History[Setting]) -> History[Setting]:
        """Return the expected cost of each setting, measured or not, with its error; ascending."""
        return self._posterior(candidates, history).costs() if _measured(history) else ()

    def _first(self, candidates: Sequence[Setting]) -> Setting:
        if not self.similar or self._needs_reference():
            return max(candidates)
        posterior = self._posterior(candidates, ())
        allowed = _among(candidates, posterior.settings) > 0
        return posterior.settings[int(np.argmin(np.where(allowed, posterior.mean, np.inf)))]

    def _needs_reference(self) -> bool:
        """Return True where the objective compares with a reference that was not measured."""
        compares = self.objective.limit_s(None) is None and self.objective.limit_s(Measurement(1.0, 1.0)) is not None
        return compares and self.reference is None

    def _posterior(self, candidates: Sequence[Setting], history: History[Setting]) -> CurvePosterior:
        return _posterior(self, tuple(candidates), tuple(history))


def _measured(history: History[Setting]) -> frozenset[Setting]:
    return frozenset(trial.choice for trial in history if trial.cost.time_s > 0 and trial.cost.energy_j > 0)


@lru_cache(maxsize=4)
def _posterior(search: SettingSearch, candidates: tuple[Setting, ...], history: History[Setting]) -> CurvePosterior:
    """Return the posterior after the history; cached, since `propose` and `best` are called one after the other."""
    settings = tuple(sorted({*candidates, *_measured(history)}))
    limits_w = [setting.power_limit_w for setting in settings if setting.power_limit_w is not None]
    top_w = search.max_power_w or max(limits_w, default=None)
    watts = 1.0 if top_w is None else top_w * search.gpus
    points = trial_evidence(history, watts=watts)
    if points and all(setting.sm_mhz is not None for setting in settings):
        return program_curves(
            settings,
            _points_of(settings, top_w=top_w, limit_w=search.limit_w, max_mhz=search.max_mhz),
            points,
            free_power=top_w is None,
            watts=watts,
            objective=search.objective,
            reference=search.reference,
        )
    ensemble = _ensemble_at(settings, top_w=top_w, limit_w=search.limit_w, max_mhz=search.max_mhz)
    observed = observed_at(points, {setting: place for place, setting in enumerate(settings)})
    log_likelihood, level = likelihood(ensemble, observed, free_power=top_w is None)
    for similar in search.similar:
        similar_w = similar.max_power_w or top_w
        gpus = similar.gpus or search.gpus
        log_likelihood = log_likelihood + _likelihood_of_similar(
            similar, similar_w, gpus, search.limit_w, search.max_mhz
        )
    alive = log_likelihood - log_likelihood.max() > log(_NEGLIGIBLE)
    return curve_posterior(
        ensemble.subset(alive),
        settings,
        observed,
        windows=np.array([points[setting].windows if setting in points else 0.0 for setting in settings]),
        weights=likelihood_weights(log_likelihood[alive]),
        level=level[alive],
        watts=watts,
        objective=search.objective,
        reference=search.reference,
    )


@lru_cache(maxsize=16)
def _likelihood_of_similar(
    similar: SimilarProfile, top_w: float | None, gpus: int, limit_w: float | None, max_mhz: int | None
) -> Floats:
    """Return the log-likelihood of each curve, given a similar profile: (curves,)."""
    points = trial_evidence(similar.trials, watts=1.0 if top_w is None else top_w * gpus)
    settings = tuple(sorted(points))
    ensemble = _ensemble_at(settings, top_w=top_w, limit_w=limit_w, max_mhz=max_mhz)
    observed = observed_at(points, {setting: place for place, setting in enumerate(settings)})
    distance = sqrt(max(similar.octaves, LEAST_OCTAVES))
    loose, _ = likelihood(
        ensemble,
        observed,
        free_power=top_w is None,
        shape_sd=distance * SIMILAR_SHAPE,
        level_sd=distance * SIMILAR_POWER,
    )
    exact, _ = likelihood(ensemble, observed, free_power=top_w is None)
    return loose + spread_likelihood(ensemble, exact)


def _ensemble_at(
    settings: tuple[Setting, ...], *, top_w: float | None, limit_w: float | None, max_mhz: int | None
) -> Ensemble:
    """Evaluate the ensemble at these settings."""
    return jobs_at(_points_of(settings, top_w=top_w, limit_w=limit_w, max_mhz=max_mhz))


def _points_of(
    settings: tuple[Setting, ...], *, top_w: float | None, limit_w: float | None, max_mhz: int | None
) -> tuple[ClockPoint, ...]:
    """Return the points of these settings; one without a limit has the one that was found."""
    clocks_mhz = [setting.sm_mhz for setting in settings if setting.sm_mhz is not None]
    scale = PointScale(sm_mhz=max_mhz or max(clocks_mhz, default=None), mem_mhz=None, limit_w=top_w)
    return tuple(
        scale.point(setting if setting.power_limit_w is not None else replace(setting, power_limit_w=limit_w))
        for setting in settings
    )


def _unmeasured_neighbour(posterior: CurvePosterior, b: int, allowed: Floats) -> Setting | None:
    """Return a setting next to b, on a side where nothing near was measured; None where both sides are known.

    Curves that fit may still be wrong: the ensemble may lack a job that draws far less one step further down.
    """
    level = np.array([_level(setting) for setting in posterior.settings])
    aside = level / level[b] - 1.0
    near = (posterior.windows > 0) & (np.abs(aside) <= NEAR)
    unmeasured = (allowed > 0) & (posterior.windows == 0) & (np.abs(aside) >= STEP_ASIDE)
    for side in (aside < 0, aside > 0):
        places = np.flatnonzero(side & unmeasured & (posterior.mean - posterior.mean[b] < CERTAINLY_WORSE))
        if len(places) and not (side & near).any():
            return posterior.settings[int(places[np.argmin(np.abs(aside[places]))])]
    return None


def _level(setting: Setting) -> float:
    """Return what a search varies, as a number: the clock where one is locked, else the limit."""
    return float(setting.sm_mhz or setting.power_limit_w or 1.0)


def _among(candidates: Sequence[Setting], settings: tuple[Setting, ...]) -> Floats:
    """(settings,): 1 for each that is a candidate."""
    wanted = frozenset(candidates)
    return np.array([1.0 if setting in wanted else 0.0 for setting in settings])
