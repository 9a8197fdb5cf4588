"""Our policy for a program that runs: few trials, then hold, and never be slower than was promised.

A baseline, then trials where the belief of `gear_belief` thinks the optimum is, each as short as its error bar allows.
What is held is the best setting of which it is sure enough that the whole run, with all that passed until now, stays
within the promise. Every window that is held makes the belief surer, so the guard band shrinks and the setting follows.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf, sqrt

from scipy.special import ndtri

from wattune.core.gpu_spec import GpuSpec
from wattune.core.objective import Objective
from wattune.core.run_window import Order, Purpose, Window
from wattune.core.setting import DRIVER_DEFAULT, Setting
from wattune.search.gear_bank import Gear
from wattune.search.gear_belief import Belief, believe
from wattune.search.gear_candidates import candidates_of
from wattune.search.gear_choice import Choice, choose
from wattune.search.gear_evidence import Evidence, Scale, evidence
from wattune.search.look_length import error_by_length
from wattune.search.run_account import Account, account

CONFIDENCE = 0.99
"""How sure the promise must be at every decision; there are several in a run, and 99 % is promised for the run."""

MOST_TRIALS, MANY_TRIALS = 3, 6
"""Trials in a run, as a rule; and where a lot more could be had."""
_TRIAL_WORTH, _LOT = 0.02, 0.05
"""What a trial must promise beyond what is sure, as a share of the energy; and what is a lot."""
_FIRST_S, _FIRST_MOST_S, _FIRST_PRECISION = 5.0, 20.0, 0.006
_TRIAL_S, _TRIAL_MOST_S, _TRIAL_PRECISION = 4.0, 15.0, 0.010
_HOLD_S, _HOLD_MOST_S = 20.0, 240.0
_HOLD_SHORT_S, _NO_BETTER = 30.0, 0.7
"""Where longer windows are no better, and something is left to be found out, many short ones tell more."""
_LOOKS_S = (10.0, 20.0, 40.0, 80.0)
"""Lengths of later baselines."""
_SAME = 3
"""Windows at one setting after which another trial there would tell little more."""
_IN_A_ROW = 3
"""So many baselines follow each other at most."""
_AHEAD_S, _AHEAD_SHARE = 60.0, 0.1
"""For how long a setting is thought to be held, when it is asked whether the promise is kept at the end of that: so
long, and this share of what has passed. By then it is looked at again."""
_WORTH = 0.004
"""What is not worth a change of clocks, as a share of the energy."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CurvePolicy:
    """A `RunPolicy`: frozen; its memory is the windows."""

    objective: Objective
    candidates: tuple[Setting, ...] | None = None
    """What may be set; None is all that the part has and that is of use."""
    baseline: Setting = DRIVER_DEFAULT
    confidence: float = CONFIDENCE
    held_confidence: float = 0.5
    """How sure each setting that is held must be to keep the promise by itself; the whole run keeps it anyway."""
    default_s: float | None = None
    """How long the program would take at its baseline, where that is known: a deadline needs it."""
    horizon_s: float = 1800.0
    """For how long the program is thought to go on, at least: what a search may cost follows from it."""
    name: str = "wattune"

    def step(self, seen: tuple[Window, ...], spec: GpuSpec) -> Order:
        """The order for the next window."""
        known = _since_change(seen)
        if not any(window.purpose is Purpose.BASELINE for window in known):
            return self._baseline(_FIRST_S, _FIRST_MOST_S, "what everything is compared with")
        view = self._view(known, spec)
        if view is None:
            return self._hold(self.baseline, known, "there is nothing to set")
        return self._trial(view, known) or self._held(view, known)

    def _baseline(self, least_s: float, most_s: float, why: str) -> Order:
        return Order(
            setting=self.baseline,
            purpose=Purpose.BASELINE,
            least_s=least_s,
            most_s=most_s,
            precision=_FIRST_PRECISION,
            why=why,
        )

    def _view(self, known: tuple[Window, ...], spec: GpuSpec) -> _View | None:
        scale = Scale.of(spec)
        based = [window for window in known if window.purpose is Purpose.BASELINE]
        settings = self.candidates
        if settings is None:
            settings = candidates_of(spec, traffic=based[0].mem_util)
        if not settings:
            return None
        base = scale.gear(self.baseline, based[-1].sm_mhz)
        reads = based[-1].sm_mhz is not None
        gears = tuple(scale.gear(setting, setting.sm_mhz if reads else None) for setting in settings)
        points = evidence(known, scale)
        belief = believe(gears, points, free_power=scale.limit_w is None)
        book = account(known, scale)
        choice = choose(
            belief,
            gears,
            base=base,
            book=book,
            objective=self.objective,
            ahead_s=_ahead_s(book.total_s),
            sure=float(ndtri(self.confidence)),
            held_sure=float(ndtri(self.held_confidence)),
            watts=scale.limit_w or 1.0,
            default_s=self.default_s,
        )
        return _View(settings, gears, base, belief, choice, book, points)

    def _trial(self, view: _View, known: tuple[Window, ...]) -> Order | None:
        """A trial, where it may find something better than what is sure; None otherwise."""
        choice = view.choice
        tried = [window for window in known if window.purpose is Purpose.TRIAL]
        place = choice.hope if choice.guess is None or choice.guess == choice.safe else choice.guess
        if place is None or choice.lost < _TRIAL_WORTH or len(tried) >= _most_trials(choice.lost):
            return None
        setting = view.settings[place]
        if setting == known[-1].setting and _own_error(view, place) < 0.7 * choice.doubt[place]:
            return None
        if sum(window.setting == setting for window in known) >= _SAME or not _tells_more(setting, known):
            return None
        unit_s = max((window.pace_s or 0.0 for window in known), default=0.0)
        return Order(
            setting=setting,
            purpose=Purpose.TRIAL,
            least_s=_TRIAL_S,
            most_s=max(_TRIAL_MOST_S, min(2.5 * unit_s, 90.0)),
            precision=_TRIAL_PRECISION,
            why=f"saves most within the promise, as far as is known: {choice.words(place)}",
        )

    def _held(self, view: _View, known: tuple[Window, ...]) -> Order:
        choice = view.choice
        again = self._baseline_again(view, known)
        if again is not None:
            return again
        if choice.safe is None:
            return self._hold(self.baseline, known, "nothing else is sure to keep the promise")
        place, now = choice.safe, known[-1].setting
        if now in view.settings:
            current = view.settings.index(now)
            if choice.allowed[current] and choice.value(current) - choice.value(place) < _WORTH / 2:
                place = current
        return self._hold(view.settings[place], known, choice.words(place), open_=choice.lost > _WORTH)

    def _baseline_again(self, view: _View, known: tuple[Window, ...]) -> Order | None:
        """Another look at the baseline, where the guard band costs more than the look would."""
        choice, book = view.choice, view.book
        point = view.points.get(view.base)
        if choice.hope is None or point is None or point.log_pace is None:
            return None
        ahead_s, saving = max(self.horizon_s, book.total_s), max(-choice.value(choice.safe), 0.02)
        error, spread = point.log_pace.error, max(float(choice.doubt[choice.hope]), 1e-9)
        expected = error_by_length(known)

        def gain(length_s: float) -> float:
            """What a look of that length is expected to be worth, in seconds of the baseline's energy."""
            less = error**4 / (error**2 + expected(length_s) ** 2)
            better = 1.0 - sqrt(max(spread**2 - less, 0.0)) / spread
            return better * choice.lost * ahead_s - (length_s + 2.0) * saving

        best_s = max(_LOOKS_S, key=gain)
        row = known[-_IN_A_ROW:]
        if gain(best_s) > 0.0 and not all(window.purpose is Purpose.BASELINE for window in row):
            return self._baseline(best_s, best_s, "the guard band is wider than it needs to be")
        return None

    def _hold(self, setting: Setting, known: tuple[Window, ...], why: str, *, open_: bool = False) -> Order:
        held = sum(window.purpose is Purpose.HOLD for window in known)
        passed_s = sum(window.cost.time_s + window.settling.time_s for window in known)
        length_s = min(_HOLD_S * 1.5**held, _ahead_s(passed_s), _HOLD_MOST_S)
        expected = error_by_length(known)
        if open_ and expected(_HOLD_MOST_S) > _NO_BETTER * expected(_HOLD_S):
            length_s = min(length_s, _HOLD_SHORT_S)
        return Order(setting=setting, purpose=Purpose.HOLD, least_s=length_s, most_s=length_s, why=why)


@dataclass(frozen=True, slots=True, eq=False)
class _View:
    """What one step thinks."""

    settings: tuple[Setting, ...]
    gears: tuple[Gear, ...]
    base: Gear
    belief: Belief
    choice: Choice
    book: Account
    points: Evidence


def _tells_more(setting: Setting, known: tuple[Window, ...]) -> bool:
    """Whether another window there could tell something: without a pace, one tells all there is."""
    return any(window.pace_s for window in known) or all(window.setting != setting for window in known)


def _ahead_s(passed_s: float) -> float:
    return _AHEAD_S + _AHEAD_SHARE * passed_s


def _most_trials(lost: float) -> int:
    return MANY_TRIALS if lost > _LOT else MOST_TRIALS


def _own_error(view: _View, place: int) -> float:
    """Standard error of the pace at a gear by itself; endless where there is none."""
    point = view.points.get(view.gears[place])
    return inf if point is None or point.log_pace is None else point.log_pace.error


def _since_change(seen: tuple[Window, ...]) -> tuple[Window, ...]:
    """The windows since the program last began to do something else."""
    last = max((place for place, window in enumerate(seen) if window.changed), default=-1)
    return seen[last + 1 :]
