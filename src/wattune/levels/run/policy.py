"""wattune's policy for a running program: few trials, then hold, and never exceed the slowdown limit.

A baseline, then trials where the posterior of `response.posterior` expects the optimum, each as short as its
error allows. The setting that is held is the best of those that are sure to keep the whole run, with all that passed
until now, within the limit. Every window that is held makes the posterior surer, so the safety margin shrinks and the
setting follows.

Nothing is held that cannot be checked: without a step time at the baseline its setting stays, and a setting at which no
step time was seen is left out.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import inf, sqrt
from typing import ClassVar

import numpy as np
from scipy.special import ndtri

from wattune.core.gpu_spec import GpuSpec
from wattune.core.measurement import SIGMAS_95
from wattune.core.objective import Objective
from wattune.core.setting import DRIVER_DEFAULT, Setting
from wattune.core.window import Order, Purpose, Window, phases_of, since_change, steps_s
from wattune.levels.run.constrained_choice import TRIAL_S, Choice, choose, time_spent
from wattune.levels.run.mixture import Mixture
from wattune.response.clock_doubt import window_doubt
from wattune.response.evidence import LEAST_STEP_TIME, USUAL_STEP_TIME, Evidence, evidence
from wattune.response.points import ClockPoint, PointScale, candidates_of
from wattune.response.posterior import posterior_of

CONFIDENCE = 0.99
"""Probability at every decision that the limit is met. A wrong decision is corrected at the next window while the run
goes on, so more runs than that meet their limit; 99 % is the goal."""
MOST_TRIALS, MANY_TRIALS = 3, 6
"""Trials in a run, as a rule; and where much more could be saved."""
_TRIAL_WORTH, _MUCH = 0.02, 0.05
"""Share of the energy that a trial must be expected to save beyond what is sure; and what counts as much."""
_FIRST_S, _FIRST_MOST_S = 5.0, 20.0
_TRIAL_S, _TRIAL_MOST_S, _TRIAL_PRECISION = 4.0, 15.0, 0.010
_UNSEEN = 2
"""Windows at other settings without a step time after which no other setting is tried: what shows steps at the baseline
does not show them there. After as many in a row at one setting it is left."""
_BESIDE_S, _BESIDE_SHARE = 600.0, 0.05
"""A run this long measures a setting below those that it holds once, lower by this share at least: there a trial costs
little, and measurements that no curve explains would otherwise hide everything below them."""
_SAME = 3
"""Windows at one setting after which another trial there would show little more."""
_IN_A_ROW = 3
"""Most baselines in a row."""
_WORTH = 0.004
"""Share of the energy that is not worth a change of clocks."""
_LEAST_COST = 0.01
"""A baseline window is never free: it costs at least this share of its energy."""
_BASELINES_S = (10.0, 20.0, 40.0, 80.0)
"""Lengths of later baseline windows."""
_BETWEEN_S = 2.0
"""About how long clocks settle between two windows."""
_BASELINE_PRECISION = 0.006
_HOLD_S, _HOLD_MOST_S = 20.0, 240.0
_HOLD_SHORT_S, _NO_BETTER = 30.0, 0.7
"""Many short windows show more where longer ones are no more precise and something is left to find out."""
_AHEAD_S, _AHEAD_SHARE = 60.0, 0.1
"""A setting is held no longer than this, plus this share of what has passed, before it is judged again."""
_TURN_S = 120.0
"""A setting takes turns with another after this long at the earliest, or after the time above where that is shorter."""
_USUAL_S = 10.0
"""The length at which a window without an error of its own has the usual one."""


@dataclass(frozen=True, slots=True, eq=False)
class Prediction:
    """The settings that may be chosen, and what is known and predicted of them."""

    settings: tuple[Setting, ...]
    points: tuple[ClockPoint, ...]
    base: ClockPoint
    choice: Choice
    total_s: float
    """Seconds of the run so far."""
    measured: Evidence

    def error(self, point: ClockPoint) -> float:
        """Return the standard error of the step time at a point by its own windows; infinite where there are none."""
        entry = self.measured.get(point)
        return inf if entry is None or entry.log_time is None else entry.log_time.error


@dataclass(frozen=True, slots=True, kw_only=True)
class CurvePolicy:
    """A `RunPolicy`; its memory is the windows."""

    objective: Objective
    candidates: tuple[Setting, ...] | None = None
    """Settings to choose from; None for all useful ones of the GPU."""
    baseline: Setting = DRIVER_DEFAULT
    confidence: float = CONFIDENCE
    horizon_s: float = 1800.0
    """Least time that the program is assumed to go on; it bounds the cost of a search."""
    by_turns: bool = True
    """Whether two settings may be held by turns where the limit lies between them. Never by periods of power, which are
    not exact enough, nor with phases of steps, which have settings of their own."""
    name: str = "wattune"
    tunes: ClassVar[bool] = True
    uses_history: ClassVar[bool] = True
    needs_counters: ClassVar[bool] = False

    def step(self, windows: tuple[Window, ...], spec: GpuSpec) -> Order:
        known = since_change(windows)
        if not any(window.purpose is Purpose.BASELINE for window in known):
            return self._baseline_order(_FIRST_S, most_s=_FIRST_MOST_S, why="everything is compared with it")
        prediction = self._prediction(known, spec)
        if prediction is None:
            return _hold_order(self.baseline, _hold_s(known), why="there is nothing to set")
        return (
            self._unchecked(prediction, known, windows)
            or self._trial(prediction, known)
            or self._held(prediction, known)
        )

    def _unchecked(
        self, prediction: Prediction, known: tuple[Window, ...], windows: tuple[Window, ...]
    ) -> Order | None:
        """Keep to the baseline where step times are unknown or do not follow the clock; return None where they do.

        A program that once did not follow the clock is not tuned again in this run, whatever it does then.
        """
        if not any(window.step_time_s for window in known if window.purpose is Purpose.BASELINE):
            most_s = min(_FIRST_MOST_S * 2.0 ** len(known), _HOLD_MOST_S)
            order = self._baseline_order(_FIRST_S, most_s=most_s, why="no step time of the program is known yet")
            unknown = f"no step time of the program is known, so the {self.baseline} stays{_estimated(prediction)}"
            return replace(order, remark=unknown) if len(known) == 1 else order
        doubt = next((words for phase in phases_of(windows) if (words := window_doubt(phase))), None)
        if doubt is not None:
            remark = f"the program does not follow the clock of this GPU, so the {self.baseline} stays: {doubt}"
            return replace(_hold_order(self.baseline, _hold_s(known), why=doubt), remark=remark)
        elsewhere = [window for window in known if window.setting != self.baseline and not window.recalled]
        unseen = sum(window.step_time_s is None for window in elsewhere)
        if unseen < _UNSEEN or 2 * unseen < len(elsewhere):
            return None
        why = f"step times were seen at the {self.baseline} only, and nothing is held that cannot be checked"
        return replace(_hold_order(self.baseline, _hold_s(known), why=why), remark=why)

    def _prediction(self, known: tuple[Window, ...], spec: GpuSpec) -> Prediction | None:
        scale = PointScale.of(spec)
        based = [window for window in known if window.purpose is Purpose.BASELINE]
        settings = self.candidates
        if settings is None:
            settings = candidates_of(spec, traffic=based[0].mem_util)
        settings = tuple(setting for setting in settings if not _is_unseen(setting, known))
        if not settings:
            return None
        base = scale.point(self.baseline, based[-1].sm_mhz)
        reads = based[-1].sm_mhz is not None
        points, settings = distinct(
            (*settings, self.baseline),
            [*(scale.point(setting, setting.sm_mhz if reads else None) for setting in settings), base],
        )
        measured = evidence(known, scale)
        spent = time_spent(known, scale)
        total_s = sum(spent.values())
        choice = choose(
            posterior_of(points, measured, free_power=scale.limit_w is None),
            points,
            base=base,
            spent=spent,
            objective=self.objective,
            ahead_s=max(_ahead_s(total_s), steps_s(known)),
            horizon_s=max(self.horizon_s, total_s),
            trial_s=max(TRIAL_S, 1.3 * steps_s(known)),
            sure=float(ndtri(self.confidence)),
            watts=scale.limit_w or 1.0,
            by_turns=self._takes_turns(known),
        )
        return Prediction(settings, points, base, choice, total_s, measured)

    def _takes_turns(self, known: tuple[Window, ...]) -> bool:
        return self.by_turns and not any(window.source == "period" or window.phases for window in known)

    def _trial(self, prediction: Prediction, known: tuple[Window, ...]) -> Order | None:
        """Order a trial where it may find something better than what is sure; return None if not."""
        place = self._wanted(prediction, known)
        if place is not None:
            why = f"saves most within the slowdown limit, as far as is known: {prediction.choice.words(place)}"
            return _trial_order(prediction.settings[place], known, why=why)
        place = self._unknown(prediction, known)
        if place is not None:
            why = "nothing that is known saves energy, and the slack of the run covers a measurement"
            return _trial_order(prediction.settings[place], known, why=why)
        place = self._beside(prediction, known)
        if place is not None:
            return _trial_order(prediction.settings[place], known, why="nothing near it was measured")
        return None

    def _wanted(self, prediction: Prediction, known: tuple[Window, ...]) -> int | None:
        """Return the place of the setting that is expected to save most, where a trial of it is worth its cost."""
        choice = prediction.choice
        tried = sum(window.purpose is Purpose.TRIAL for window in known)
        if choice.lost < _TRIAL_WORTH or tried >= (MANY_TRIALS if choice.lost > _MUCH else MOST_TRIALS):
            return None
        sure = () if choice.feasible is None else choice.feasible.places
        wanted = choice.expected
        if wanted is None or set(wanted.places) <= set(sure):
            wanted = choice.optimistic
        wanted_places = () if wanted is None else wanted.places
        places = [place for place in wanted_places if self._is_worth(place, prediction, known)]
        if not places:
            return None
        return max(places, key=lambda one: choice.slower_sd[one])

    def _unknown(self, prediction: Prediction, known: tuple[Window, ...]) -> int | None:
        """Return the place of a setting that was never measured, where everything known is no better than the baseline.

        A curve that one odd measurement misleads would otherwise stay wrong for the rest of the run, while slack that
        nothing uses grows. Turns alone can use a setting that is slower than the limit.
        """
        choice, base = prediction.choice, prediction.points.index(prediction.base)
        held = base if choice.feasible is None else choice.feasible.fast
        saves = held != base or (choice.feasible is not None and not choice.feasible.is_one)
        tried = sum(window.purpose is Purpose.TRIAL for window in known)
        if saves or tried >= MOST_TRIALS or not self._takes_turns(known):
            return None
        new = [
            place
            for place, point in enumerate(prediction.points)
            if place != base and choice.affordable[place] and point not in prediction.measured
        ]
        return min(new, key=lambda place: choice.slower[place], default=None)

    def _beside(self, prediction: Prediction, known: tuple[Window, ...]) -> int | None:
        """Return the place of the next setting well below those that are held, if it was never measured."""
        choice, points = prediction.choice, prediction.points
        tried = sum(window.purpose is Purpose.TRIAL for window in known)
        if prediction.total_s < _BESIDE_S or tried >= MANY_TRIALS or not self._takes_turns(known):
            return None
        held = prediction.base if choice.feasible is None else points[choice.feasible.slow]
        most = (1.0 - _BESIDE_SHARE) * held.level
        below = [place for place, point in enumerate(points) if point.y == held.y and point.level <= most]
        place = max(below, key=lambda one: points[one].level, default=None)
        if place is None or not choice.affordable[place]:
            return None
        measured = any(point.y == held.y and point.level <= most for point in prediction.measured)
        return None if measured else place

    def _is_worth(self, place: int, prediction: Prediction, known: tuple[Window, ...]) -> bool:
        """Return whether a trial of a setting is affordable and would show something."""
        setting, choice = prediction.settings[place], prediction.choice
        if setting == self.baseline or not choice.affordable[place]:
            return False
        if prediction.error(prediction.points[place]) < 0.7 * choice.slower_sd[place]:
            return False
        return sum(window.setting == setting for window in known) < _SAME

    def _held(self, prediction: Prediction, known: tuple[Window, ...]) -> Order:
        choice = prediction.choice
        best = choice.feasible
        turns = best is not None and not best.is_one
        if best is not None and turns and self._may_slow(best, prediction, known):
            return self._slow_turn(best, prediction, known)
        again = self._baseline_again(prediction, known)
        if again is not None:
            return again
        if best is None:
            why = "no other setting is sure to meet the slowdown limit"
            return _hold_order(self.baseline, _hold_s(known), why=why)
        if turns:
            return self._fast_turn(best, prediction, known)
        place, now = best.fast, known[-1].setting
        # What was never measured is chosen for what it may be: staying would keep it unknown for the rest of the run.
        if now in prediction.settings and prediction.points[place] in prediction.measured:
            current = prediction.settings.index(now)
            if choice.allowed(current) and choice.log_value[current] - choice.log_value[place] < _WORTH / 2:
                place = current
        length_s = _short_hold_s(known) if choice.margin > _WORTH else _hold_s(known)
        return _hold_order(prediction.settings[place], length_s, why=choice.words(place))

    def _may_slow(self, pair: Mixture, prediction: Prediction, known: tuple[Window, ...]) -> bool:
        """Return whether the slack of the whole run surely covers a turn of the slow setting, and one is due."""
        choice, last = prediction.choice, known[-1]
        turn_s = _turn_s(choice, known)
        waits = last.setting == prediction.settings[pair.fast] and last.purpose is Purpose.HOLD
        is_due = not waits or _held_for_s(known) >= turn_s
        return choice.sure_s + turn_s * choice.earned(pair.slow) >= 0.0 and is_due

    def _slow_turn(self, pair: Mixture, prediction: Prediction, known: tuple[Window, ...]) -> Order:
        """Hold the slow setting for as long as the slack lasts."""
        choice = prediction.choice
        spent = -choice.earned(pair.slow)
        lasts_s = min(choice.sure_s / spent if spent > 0 else inf, choice.ahead_s)
        fast, slow = (prediction.settings[place] for place in (pair.fast, pair.slow))
        order = _hold_order(
            slow,
            max(min(lasts_s, _hold_s(known)), _turn_s(choice, known)),
            why=f"{choice.words(pair.slow)}, by turns with {fast}",
        )
        if any(window.setting == slow for window in known if window.purpose is Purpose.HOLD):
            return order
        return replace(order, remark=f"alternates between {fast} and {slow}: the slowdown limit lies between them")

    def _fast_turn(self, pair: Mixture, prediction: Prediction, known: tuple[Window, ...]) -> Order:
        """Hold the fast setting until the slack covers a turn of the slow one."""
        choice = prediction.choice
        turn_s = _turn_s(choice, known)
        earned, needed_s = choice.earned(pair.fast), -choice.earned(pair.slow) * turn_s - choice.sure_s
        earns_s = max(needed_s / earned, turn_s) if earned > 0 else turn_s
        why = f"{choice.words(pair.fast)}, by turns with {prediction.settings[pair.slow]}"
        return _hold_order(prediction.settings[pair.fast], min(earns_s, _hold_s(known)), why=why)

    def _baseline_again(self, prediction: Prediction, known: tuple[Window, ...]) -> Order | None:
        """Order another baseline window where the safety margin costs more than the window would."""
        choice = prediction.choice
        entry = prediction.measured.get(prediction.base)
        if choice.alike is None or entry is None or entry.log_time is None:
            return None
        error, spread = entry.log_time.error, max(float(choice.slower_sd[choice.alike.slow]), 1e-9)
        expected, horizon_s = error_by_length(known), max(self.horizon_s, prediction.total_s)
        cost = max(choice.base_cost, _LEAST_COST)

        def gain(length_s: float) -> float:
            """Return what a window of that length is expected to gain, in seconds of the baseline's energy."""
            less = error**4 / (error**2 + expected(length_s) ** 2)
            better = 1.0 - sqrt(max(spread**2 - less, 0.0)) / spread
            return better * choice.margin * horizon_s - (length_s + _BETWEEN_S) * cost

        best_s = max(_BASELINES_S, key=gain)
        row = known[-_IN_A_ROW:]
        if gain(best_s) > 0.0 and not all(window.purpose is Purpose.BASELINE for window in row):
            return self._baseline_order(best_s, most_s=best_s, why="the safety margin is wider than it needs to be")
        return None

    def _baseline_order(self, least_s: float, *, most_s: float, why: str) -> Order:
        return Order(
            setting=self.baseline,
            purpose=Purpose.BASELINE,
            least_s=least_s,
            most_s=most_s,
            precision=_BASELINE_PRECISION,
            why=why,
        )


def error_by_length(windows: tuple[Window, ...]) -> Callable[[float], float]:
    """Return a function from the length of a window to the standard error of its step time, as a share.

    Errors fall with the root of the time, unless the windows so far show that they do not.
    """
    known = [
        (
            np.log(window.cost.time_s),
            np.log(max(window.step_time_error_s / SIGMAS_95 / window.step_time_s, LEAST_STEP_TIME)),
        )
        for window in windows
        if window.step_time_s and window.step_time_error_s and window.cost.time_s > 0
    ]
    if not known:
        return lambda length_s: USUAL_STEP_TIME / float(np.sqrt(length_s / _USUAL_S))
    lengths, errors = (np.array(column) for column in zip(*known, strict=True))
    # The prior of the slope is -0.5, as strong as two windows an octave to either side.
    spread = float(((lengths - lengths.mean()) ** 2).sum())
    slope = float(((lengths - lengths.mean()) * (errors - errors.mean())).sum())
    power = float(np.clip((slope - 0.5) / (spread + 1.0), -0.5, 0.0))
    middle_s, middle = float(lengths.mean()), float(errors.mean())
    return lambda length_s: max(float(np.exp(middle + power * (np.log(length_s) - middle_s))), LEAST_STEP_TIME)


def _trial_order(setting: Setting, known: tuple[Window, ...], *, why: str) -> Order:
    return Order(
        setting=setting,
        purpose=Purpose.TRIAL,
        least_s=_TRIAL_S,
        most_s=max(_TRIAL_MOST_S, steps_s(known)),
        precision=_TRIAL_PRECISION,
        why=why,
    )


def distinct(
    settings: tuple[Setting, ...], points: list[ClockPoint]
) -> tuple[tuple[ClockPoint, ...], tuple[Setting, ...]]:
    """Return each point once, with a setting for it: of several the one that leaves most to the driver."""
    found: dict[ClockPoint, Setting] = {}
    for point, setting in zip(points, settings, strict=True):
        if point not in found or len(setting.knobs) < len(found[point].knobs):
            found[point] = setting
    return tuple(found), tuple(found.values())


def _ahead_s(passed_s: float) -> float:
    return min(_AHEAD_S + _AHEAD_SHARE * passed_s, _HOLD_MOST_S)


def _turn_s(choice: Choice, known: tuple[Window, ...]) -> float:
    """Return how long a setting is held at least before it takes turns with another.

    Slack that is sure falls ever faster with time, since errors add up; so a part of `ahead_s` spends at most its part.
    """
    return min(choice.ahead_s, max(_TURN_S, steps_s(known)))


def _held_for_s(known: tuple[Window, ...]) -> float:
    """Return for how long the last setting has been held without a change."""
    last = known[-1].setting
    others = [place for place, window in enumerate(known) if window.setting != last]
    return sum(window.total.time_s for window in known[max(others, default=-1) + 1 :])


def _hold_s(known: tuple[Window, ...]) -> float:
    """Return how long to hold a setting: longer each time."""
    held = sum(window.purpose is Purpose.HOLD for window in known)
    passed_s = sum(window.total.time_s for window in known)
    return max(float(min(_HOLD_S * 1.5**held, _ahead_s(passed_s))), steps_s(known))


def _short_hold_s(known: tuple[Window, ...]) -> float:
    """Return the same while something is left to find out: not for long where longer windows are no more precise."""
    expected = error_by_length(known)
    if expected(_HOLD_MOST_S) > _NO_BETTER * expected(_HOLD_S):
        return min(_hold_s(known), max(_HOLD_SHORT_S, steps_s(known)))
    return _hold_s(known)


def _estimated(prediction: Prediction) -> str:
    """Return what is expected of the best setting, for an event; empty where the baseline is best."""
    choice = prediction.choice
    wanted = choice.expected or choice.optimistic
    place = None if wanted is None else wanted.slow
    if place is None or prediction.points[place] == prediction.base:
        return ""
    expected = f"{choice.words(place)} at {prediction.settings[place]}"
    return f"; an estimate from power and utilisation, not a measurement: {expected}"


def _is_unseen(setting: Setting, known: tuple[Window, ...]) -> bool:
    """Return whether the last windows of a setting showed no step time: the only one, or two in a row.

    What an earlier run showed there does not count: whether steps show in this run is the question.
    """
    own = [window for window in known if window.setting == setting and not window.recalled]
    return bool(own) and all(window.step_time_s is None for window in own[-_UNSEEN:])


def _hold_order(setting: Setting, length_s: float, *, why: str) -> Order:
    return Order(setting=setting, purpose=Purpose.HOLD, least_s=length_s, most_s=length_s, why=why)
