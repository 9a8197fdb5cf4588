"""Which power limit or core clock to measure next, until the best one for an objective is known.

Every measurement weighs the curves of `curve_bank`; what they then say decides. The first window is at the highest
setting, or where the profile of something alike says the optimum is. Each further one goes where the expected gain is
largest, and there is none once the gain no longer pays for it. So what is sure to be worse is never measured.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import sqrt

import numpy as np

from wattune.core.frontier import History
from wattune.core.measurement import Measurement
from wattune.core.objective import Objective
from wattune.core.setting import Setting
from wattune.response.curve_ensemble import Floats, ensemble_of
from wattune.response.curve_likelihood import likelihood, same_spread
from wattune.response.curve_posterior import CurvePosterior, believed
from wattune.response.repeats import RepeatedPoint, merged

SWITCH = 0.2
"""What it costs to switch and warm up, in windows: a gain that saves less while the setting is held is not worth it."""

HORIZON = 100.0
"""Windows for which the setting is going to be held, where nothing tells: eight minutes after five-second windows."""

SIMILAR_SHAPE, SIMILAR_POWER = 0.03, 0.10
"""How far curves of batch sizes an octave apart differ in shape and in the level of power, as shares: about what public
tables show (Zeus, NSDI'23)."""

CLOSEST = 0.05
"""Octaves; the same batch size on another day is not exactly the same either."""

STEP_ASIDE, NEAR = 0.05, 0.26
"""How far beside the best a setting has to lie to tell more of the curve, and may lie to tell of the best."""

SURELY_WORSE = 0.1
"""What is expected to be so much dearer than the best (the logarithm of its value) is not looked at."""

SURPRISE = 5e-4
"""What a setting that the curves think dearer is expected to save nevertheless, as a share: of twenty such settings in
recorded tables about one is cheaper by a percent or more than what the curves would hold."""

_NEGLIGIBLE = 1e-5
"""Curves so much less likely than the likeliest are left out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SimilarProfile:
    """A profile of something alike: another batch size, or the same one on another day or part."""

    trials: History[Setting]
    octaves: float
    """How far away it is, in doublings of the batch size; another part counts as two."""
    max_power_w: float | None = None
    """Highest limit of one GPU of the part it was measured on; None for the same part."""
    gpus: int | None = None
    """How many GPUs it was measured on; None for as many."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingSearch:
    """Proposes settings until the best is known well enough; a `Searcher[Setting]`.

    The costs in the history are those of equal amounts of work: an iteration, or an epoch. A setting may be in the
    history more than once; each of its windows then counts, and so each is to be kept there.
    """

    objective: Objective
    similar: tuple[SimilarProfile, ...] = ()
    reference: Measurement | None = None
    """What the same work costs at the default, where known; else the highest setting stands for it."""
    gpus: int = 1
    """How many GPUs have each setting; what they cost is what they cost together."""
    max_power_w: float | None = None
    """Highest limit of one GPU; None takes the highest limit among the settings."""
    limit_w: float | None = None
    """Limit of one GPU that holds where a setting names none; None is the highest."""
    max_mhz: int | None = None
    """Highest core clock; None takes the highest among the settings."""
    horizon: float = HORIZON
    """Windows for which the setting is going to be held."""

    def propose(self, candidates: Sequence[Setting], history: History[Setting]) -> Setting | None:
        """The setting to measure next, perhaps again; None where the best is known."""
        if not candidates:
            return None
        if not merged(history):
            return self._first(candidates)
        posterior = self._posterior(candidates, history)
        allowed = _among(candidates, posterior.settings)
        b = posterior.incumbent(allowed)
        worth = np.where(allowed > 0, posterior.gains(b) - posterior.excess(b) / self.horizon, -np.inf)
        best = int(np.argmax(worth))
        if worth[best] > SWITCH / self.horizon:
            return posterior.settings[best]
        return _unseen_side(posterior, b, allowed) or self._surprise(posterior, b, allowed)

    def _surprise(self, posterior: CurvePosterior, b: int, allowed: Floats) -> Setting | None:
        """The likeliest of the settings that were never measured, where a look costs less than a surprise may save."""
        cost = np.where((allowed > 0) & (posterior.windows == 0), posterior.excess(b), np.inf)
        place = int(np.argmin(cost))
        return posterior.settings[place] if cost[place] < SURPRISE * self.horizon else None

    def best(self, candidates: Sequence[Setting], history: History[Setting]) -> Setting | None:
        """The measured setting that is thought best; None before anything was measured."""
        if not merged(history):
            return None
        posterior = self._posterior(candidates, history)
        return posterior.settings[posterior.incumbent(_among(candidates, posterior.settings))]

    def settled(self, candidates: Sequence[Setting], history: History[Setting]) -> History[Setting]:
        """One trial for each setting that was measured: what it is believed to cost, given all the others.

        These scatter less than the windows, and the best of them is not best by luck: a profile to keep.
        """
        measured = merged(history)
        return tuple(trial for trial in self.curve(candidates, history) if trial.choice in measured)

    def curve(self, candidates: Sequence[Setting], history: History[Setting]) -> History[Setting]:
        """What each setting, measured or not, is believed to cost, with the errors of that belief; ascending."""
        return self._posterior(candidates, history).costs() if merged(history) else ()

    def _first(self, candidates: Sequence[Setting]) -> Setting:
        if not self.similar or self._compares():
            return max(candidates)
        posterior = self._posterior(candidates, ())
        return posterior.settings[
            int(np.argmin(np.where(_among(candidates, posterior.settings) > 0, posterior.mean, np.inf)))
        ]

    def _compares(self) -> bool:
        """Whether the objective compares with a reference that nobody has measured."""
        asks = self.objective.limit_s(None) is None and self.objective.limit_s(Measurement(1.0, 1.0)) is not None
        return asks and self.reference is None

    def _posterior(self, candidates: Sequence[Setting], history: History[Setting]) -> CurvePosterior:
        return _posterior(self, tuple(candidates), tuple(history))

    def likelihood_of_similar(self, similar: SimilarProfile, top_w: float | None) -> Floats:
        """(curves,): the log-likelihood of each, given the profile of something alike."""
        similar_w = similar.max_power_w or top_w
        all_w = None if similar_w is None else similar_w * (similar.gpus or self.gpus)
        return _alike(similar, similar_w, all_w, self.max_mhz, self.limit_w)

    def top_w(self, settings: Sequence[Setting]) -> float | None:
        """The highest limit of one GPU; None where neither it nor any limit is known."""
        limits_w = [setting.power_limit_w for setting in settings if setting.power_limit_w is not None]
        return self.max_power_w or max(limits_w, default=None)


@lru_cache(maxsize=4)
def _posterior(search: SettingSearch, candidates: tuple[Setting, ...], history: History[Setting]) -> CurvePosterior:
    """What is believed after the history; who asks what to measure next asks for the best so far as well."""
    points = merged(history)
    settings = tuple(sorted({*candidates, *points}))
    top_w = search.top_w(settings)
    ensemble = ensemble_of(settings, max_power_w=top_w, max_mhz=search.max_mhz, limit_w=search.limit_w)
    all_w = None if top_w is None else top_w * search.gpus
    likely, level = likelihood(ensemble, settings, points, top_w=all_w)
    for similar in search.similar:
        likely = likely + search.likelihood_of_similar(similar, top_w)
    weights = np.exp(likely - likely.max())
    alive = weights > _NEGLIGIBLE
    return believed(
        ensemble.some(alive),
        settings,
        points,
        weights=weights[alive] / weights[alive].sum(),
        level=level[alive],
        top_w=all_w,
        objective=search.objective,
        reference=search.reference,
    )


@lru_cache(maxsize=16)
def _alike(
    similar: SimilarProfile, similar_w: float | None, all_w: float | None, max_mhz: int | None, limit_w: float | None
) -> Floats:
    """(curves,): the log-likelihood of each, given the profile of something alike."""
    points: dict[Setting, RepeatedPoint] = merged(similar.trials)
    settings = tuple(sorted(points))
    ensemble = ensemble_of(settings, max_power_w=similar_w, max_mhz=max_mhz, limit_w=limit_w)
    apart = sqrt(max(similar.octaves, CLOSEST))
    alike, _ = likelihood(
        ensemble, settings, points, top_w=all_w, apart=apart * SIMILAR_SHAPE, level_distance=apart * SIMILAR_POWER
    )
    same, _ = likelihood(ensemble, settings, points, top_w=all_w)
    return alike + same_spread(ensemble, same)


def _unseen_side(posterior: CurvePosterior, b: int, allowed: Floats) -> Setting | None:
    """A setting beside b, on a side of it where nothing near was measured; None where both sides are known.

    Curves that fit are not yet the right curves: the bank may lack a job that draws far less one step further down.
    """
    level = np.array([_level(setting) for setting in posterior.settings])
    aside = level / level[b] - 1.0
    near = (posterior.windows > 0) & (np.abs(aside) <= NEAR)
    unseen = (allowed > 0) & (posterior.windows == 0) & (np.abs(aside) >= STEP_ASIDE)
    for side in (aside < 0, aside > 0):
        places = np.flatnonzero(side & unseen & (posterior.mean - posterior.mean[b] < SURELY_WORSE))
        if len(places) and not (side & near).any():
            return posterior.settings[int(places[np.argmin(np.abs(aside[places]))])]
    return None


def _level(setting: Setting) -> float:
    """What a search turns, as a number: the clock where one is locked, else the limit."""
    return float(setting.sm_mhz or setting.power_limit_w or 1.0)


def _among(candidates: Sequence[Setting], settings: tuple[Setting, ...]) -> Floats:
    """(settings,): 1 for each that is a candidate."""
    wanted = frozenset(candidates)
    return np.array([1.0 if setting in wanted else 0.0 for setting in settings])
