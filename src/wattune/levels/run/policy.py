"""Our policy for a program that runs: few trials, then hold, and never be slower than was promised.

A baseline, then trials where the belief of `gear_belief` thinks the optimum is, each as short as its error bar allows.
What is held is the best setting of which it is sure enough that the whole run, with all that passed until now, stays
within the promise. Every window that is held makes the belief surer, so the guard band shrinks and the setting follows.

Where each setting that is held must keep the promise by itself, as with recorded sweeps, gears are studied instead: a
few of them are looked at as often as it takes to prove the best (`gear_study`).
"""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt
from typing import ClassVar

from scipy.special import ndtri

from wattune.core.gpu_spec import GpuSpec
from wattune.core.objective import Objective
from wattune.core.setting import DRIVER_DEFAULT, Setting
from wattune.core.window import Order, Purpose, Window, since_change
from wattune.levels.run.constrained_choice import account, choose
from wattune.levels.run.orders import (
    BETWEEN_S,
    LOOKS_S,
    Prediction,
    ahead_s,
    apart,
    baseline_order,
    error_by_length,
    hold_order,
    look_s,
    short_hold_order,
    tells_more,
)
from wattune.levels.run.study import doubtful, study
from wattune.response.candidates import candidates_of
from wattune.response.evidence import EvidenceScale, evidence
from wattune.response.program_posterior import posterior_of

CONFIDENCE = 0.98
"""How sure the promise must be at every decision. What is decided wrongly is left at the next look, while the run goes
on: so more runs than that keep their promise, of which 99 % is the goal."""

MOST_TRIALS, MANY_TRIALS = 3, 6
"""Trials in a run, as a rule; and where a lot more could be had."""
_TRIAL_WORTH, _LOT = 0.02, 0.05
"""What a trial must promise beyond what is sure, as a share of the energy; and what is a lot."""
_FIRST_S, _FIRST_MOST_S = 5.0, 20.0
_TRIAL_S, _TRIAL_MOST_S, _TRIAL_PRECISION = 4.0, 15.0, 0.010
_SAME = 3
"""Windows at one setting after which another trial there would tell little more."""
_IN_A_ROW = 3
"""So many baselines follow each other at most."""
_WORTH = 0.004
"""What is not worth a change of clocks, as a share of the energy."""
_EVEN = 0.5
"""A certainty that asks for nothing: as likely as not."""
_STUDY_S = 120.0
"""After so much study what is best so far is held for a while."""
_RESERVE_S = 900.0
"""The last gear of few is not spent before: by then some seventy looks tell where the promise ends, to about 0.3 %."""
_LOOKS_AT_ONCE = 10.0
"""A gear is studied where so many looks would be paid for by what it might save."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CurvePolicy:
    """A `RunPolicy`: frozen; its memory is the windows."""

    objective: Objective
    candidates: tuple[Setting, ...] | None = None
    """What may be set; None is all that the part has and that is of use."""
    baseline: Setting = DRIVER_DEFAULT
    confidence: float = CONFIDENCE
    held_confidence: float = _EVEN
    """How sure each setting that is held must be to keep the promise by itself; the whole run keeps it anyway. Above
    one half, gears are studied before they are held."""
    most_points: int = 6
    """Gears that are set besides the baseline, where they are studied."""
    horizon_s: float = 1800.0
    """For how long the program is thought to go on, at least: what a search may cost follows from it."""
    name: str = "wattune"
    tunes: ClassVar[bool] = True
    uses_history: ClassVar[bool] = True
    needs_counters: ClassVar[bool] = False

    def step(self, seen: tuple[Window, ...], spec: GpuSpec) -> Order:
        """The order for the next window."""
        known = since_change(seen)
        if not any(window.purpose is Purpose.BASELINE for window in known):
            why = "what everything is compared with"
            return baseline_order(self.baseline, _FIRST_S, most_s=_FIRST_MOST_S, why=why)
        view = self._prediction(known, spec)
        if view is None:
            return hold_order(self.baseline, known, why="there is nothing to set")
        if self._studies:
            return self._study(view, known) or self._proved(view, known)
        return self._trial(view, known) or self._held(view, known)

    @property
    def _studies(self) -> bool:
        return self.held_confidence > _EVEN

    def _prediction(self, known: tuple[Window, ...], spec: GpuSpec) -> Prediction | None:
        scale = EvidenceScale.of(spec)
        based = [window for window in known if window.purpose is Purpose.BASELINE]
        settings = self.candidates
        if settings is None:
            settings = candidates_of(spec, traffic=based[0].mem_util)
        if not settings:
            return None
        base = scale.point(self.baseline, based[-1].sm_mhz)
        reads = based[-1].sm_mhz is not None
        points, settings = apart(
            settings, [scale.point(setting, setting.sm_mhz if reads else None) for setting in settings]
        )
        measured = evidence(known, scale)
        posterior = posterior_of(points, measured, free_power=scale.limit_w is None)
        so_far = account(known, scale)
        choice = choose(
            posterior,
            points,
            base=base,
            so_far=so_far,
            objective=self.objective,
            ahead_s=ahead_s(so_far.total_s),
            sure=float(ndtri(self.confidence)),
            held_sure=float(ndtri(self.held_confidence)),
            watts=scale.limit_w or 1.0,
            most_points=self.most_points if self._studies else None,
        )
        return Prediction(settings, points, base, posterior, choice, so_far, measured)

    def _trial(self, view: Prediction, known: tuple[Window, ...]) -> Order | None:
        """A trial, where it may find something better than what is sure; None otherwise."""
        choice = view.choice
        tried = [window for window in known if window.purpose is Purpose.TRIAL]
        place = choice.hope if choice.guess is None or choice.guess == choice.safe else choice.guess
        if place is None or choice.lost < _TRIAL_WORTH or len(tried) >= _most_trials(choice.lost):
            return None
        setting = view.settings[place]
        if setting == known[-1].setting and view.error(view.points[place]) < 0.7 * choice.doubt[place]:
            return None
        if sum(window.setting == setting for window in known) >= _SAME or not tells_more(setting, known):
            return None
        unit_s = max((window.step_time_s or 0.0 for window in known), default=0.0)
        return Order(
            setting=setting,
            purpose=Purpose.TRIAL,
            least_s=_TRIAL_S,
            most_s=max(_TRIAL_MOST_S, min(2.5 * unit_s, 90.0)),
            precision=_TRIAL_PRECISION,
            why=f"saves most within the promise, as far as is known: {choice.words(place)}",
        )

    def _study(self, view: Prediction, known: tuple[Window, ...]) -> Order | None:
        """A look at the gear, or at the baseline, that tells most of what might be had; None where none is worth it."""
        length_s = look_s(known)
        found = study(
            view.posterior,
            view.choice,
            base=view.base,
            so_far=view.so_far,
            sure=float(ndtri(self.held_confidence)),
            look_error=error_by_length(known)(length_s),
            spare=self.most_points - view.tried,
            least=_LOOKS_AT_ONCE * (length_s + BETWEEN_S) * view.saving / max(self.horizon_s, view.so_far.total_s),
        )
        if found is None:
            return None
        if _unheld_s(known) > _STUDY_S:
            return self._between(view, known, left=found.left)
        why = f"may be better: {view.choice.words(found.target)}"
        if found.place is None:
            return baseline_order(self.baseline, length_s, most_s=length_s, why=why)
        setting = view.settings[found.place]
        return Order(setting=setting, purpose=Purpose.TRIAL, least_s=length_s, most_s=length_s, why=why)

    def _between(self, view: Prediction, known: tuple[Window, ...], *, left: float) -> Order:
        """The best that was looked at, held between looks; later what is sure and new, if that gains more."""
        choice = view.choice
        place = choice.best(choice.allowed & view.seen)
        gains = choice.value(place) - choice.value(choice.safe) > max(left, _TRIAL_WORTH)
        handful = len(view.settings) <= self.most_points + 1
        if (gains or place is None) and (handful or view.so_far.total_s > _RESERVE_S):
            place = choice.safe
        setting = self.baseline if place is None else view.settings[place]
        return short_hold_order(setting, known, why=f"the best so far: {choice.words(place)}")

    def _proved(self, view: Prediction, known: tuple[Window, ...]) -> Order:
        """What is proved is held; as long as it is in doubt, baseline and gear are looked at in turn."""
        choice, place = view.choice, view.choice.safe
        if place is None:
            return hold_order(self.baseline, known, why="nothing else is sure to keep the promise")
        why = choice.words(place)
        if not doubtful(choice, place, direct=view.direct(place)):
            return hold_order(view.settings[place], known, why=why)
        if view.error(view.points[place]) < view.error(view.base):
            length_s = look_s(known)
            why = f"what is held is near the limit: {why}"
            return baseline_order(self.baseline, length_s, most_s=length_s, why=why)
        return short_hold_order(view.settings[place], known, why=why)

    def _held(self, view: Prediction, known: tuple[Window, ...]) -> Order:
        choice = view.choice
        again = self._baseline_again(view, known)
        if again is not None:
            return again
        if choice.safe is None:
            return hold_order(self.baseline, known, why="nothing else is sure to keep the promise")
        place, now = choice.safe, known[-1].setting
        if now in view.settings:
            current = view.settings.index(now)
            if choice.allowed[current] and choice.value(current) - choice.value(place) < _WORTH / 2:
                place = current
        order = short_hold_order if choice.lost > _WORTH else hold_order
        return order(view.settings[place], known, why=choice.words(place))

    def _baseline_again(self, view: Prediction, known: tuple[Window, ...]) -> Order | None:
        """Another look at the baseline, where the guard band costs more than the look would."""
        choice, so_far = view.choice, view.so_far
        entry = view.measured.get(view.base)
        if choice.hope is None or entry is None or entry.log_step_time is None:
            return None
        horizon_s = max(self.horizon_s, so_far.total_s)
        error, spread = entry.log_step_time.error, max(float(choice.doubt[choice.hope]), 1e-9)
        expected = error_by_length(known)

        def gain(length_s: float) -> float:
            """What a look of that length is expected to be worth, in seconds of the baseline's energy."""
            less = error**4 / (error**2 + expected(length_s) ** 2)
            better = 1.0 - sqrt(max(spread**2 - less, 0.0)) / spread
            return better * choice.lost * horizon_s - (length_s + BETWEEN_S) * view.saving

        best_s = max(LOOKS_S, key=gain)
        row = known[-_IN_A_ROW:]
        if gain(best_s) > 0.0 and not all(window.purpose is Purpose.BASELINE for window in row):
            why = "the guard band is wider than it needs to be"
            return baseline_order(self.baseline, best_s, most_s=best_s, why=why)
        return None


def _most_trials(lost: float) -> int:
    return MANY_TRIALS if lost > _LOT else MOST_TRIALS


def _unheld_s(known: tuple[Window, ...]) -> float:
    """For how long nothing was held."""
    last = max((place for place, window in enumerate(known) if window.purpose is Purpose.HOLD), default=-1)
    return sum(window.cost.time_s + window.settling.time_s for window in known[last + 1 :])
