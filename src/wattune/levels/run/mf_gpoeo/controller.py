"""The controller of MF-GPOEO: which core clock follows each window, and when the controller stops.

Source: the program that the authors of MF-GPOEO released, with its gains and conditions for the RTX 3080 Ti.

Notation: p, the index of a core clock (a point), ascending; index, the slowdown; e, the limit less the index; J, the
power relative to the base times 1 + index.
    p ← round(p·(1 − (Kp·e + Ki·Σe − Kd·Δe)))
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import inf, sqrt

_KP, _KI, _KD = 2.8, 0.002, 0.9
_MOST_KP = 8.0
_FIRST, _NEAR = 0.7, 0.75
_FLAT, _FALLING = 1.5, 1.75
_NEAR_ERROR = 0.04
_OVER = ((0.003, 4.0), (0.006, 2.5), (0.025, 1.75))
"""(excess, factor): above the limit by less than the excess, Kp is multiplied by the factor."""
_FASTER = ((0.1, 2.0, 2.2), (0.4, 3.0, 2.5))
"""(distance, limits, factor): less than the distance below the limit, with an index above so many limits."""
_DEAD = 0.01
_MOST_STEPS, _LONG_STEPS, _LONG_S = 5, 4, 75.0
_ALIKE, _STEADY = 3, 8
"""Ranges of points within which the latest ones count as alike, and as steady."""
_LOW = 0.6
_OVERSHOOT = 0.05


@dataclass(frozen=True, slots=True)
class ControlStep:
    """A measured point: its index, its objective J, and whether its clock was reached."""

    point: int
    index: float
    objective: float
    reached: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Control:
    """The steps so far, and the next point."""

    limit: float
    points: int
    point: int
    steps: tuple[ControlStep, ...] = ()
    total: float = 0.0
    """Sum of the errors since their sign last changed."""
    gain: float = _KP
    raised: bool = False
    """Whether the last step raised the gain; the next one then continues from it."""

    def after(self, index: float, objective: float, *, reached: bool = True) -> Control:
        """Return the control after the measurement of its point."""
        error = self.limit - index
        before = self.limit - self.steps[-1].index if self.steps else None
        turned = before is not None and error * before < 0
        total = error if turned else self.total + error
        gain, raised = self._gain(index, reached)
        change = gain * error + (_KI * total if before is not None and not turned else 0.0)
        if before is not None:
            change -= _damping(error, error - before, self.limit)
        return replace(
            self,
            steps=(*self.steps, ControlStep(self.point, index, objective, reached)),
            total=total,
            gain=gain,
            raised=raised,
            point=self._moved(error, change),
        )

    def _gain(self, index: float, reached: bool) -> tuple[float, bool]:
        """Return Kp for this step: raised while the index hardly reacts, lowered near the limit."""
        if not self.steps:
            return _FIRST * _KP, False
        before, start = self.steps[-1], self.gain if self.raised else _KP
        calm = max(index, before.index) < 0.2 * self.limit
        if calm and (not reached or self._flat(index, before)):
            return min(_FLAT * start, _MOST_KP), True
        falling = len(self.steps) >= 2 and self.point < before.point < self.steps[-2].point
        if falling and index < 0.5 * self.limit:
            return min(_FALLING * start, _MOST_KP), True
        return _KP * self._factor(index), False

    def _flat(self, index: float, before: ControlStep) -> bool:
        """Return whether one point less slows down by less than three times the average allowance."""
        if self.point == before.point:
            return False
        return (index - before.index) / (self.point - before.point) > -3 * self.limit / (self.points - 1)

    def _factor(self, index: float) -> float:
        error = self.limit - index
        if error < 0:
            return next((factor for points, factor in _OVER if -error < points), 1.0)
        if error < _NEAR_ERROR:
            return _NEAR
        off = abs(index) / self.limit
        return next((factor for points, limits, factor in _FASTER if error < points and off > limits), 1.0)

    def _moved(self, error: float, change: float) -> int:
        if self.steps and 0 < error < _DEAD * self.limit:
            return self.point
        moved = round(self.point * (1 - change))
        if error < 0:
            moved = max(moved, self.point + 1)
        elif error > 0:
            moved = min(moved, self.point - 1)
        return min(max(moved, 0), self.points - 1)


def _damping(error: float, difference: float, limit: float) -> float:
    """Return the D term, which damps the correction after a jump."""
    return _KD * difference if error * difference > 0 and abs(difference) > 0.5 * limit else 0.0


def stopping_point(control: Control, seconds: float, *, low_memory: bool) -> int | None:
    """Return the point to stop at, or None while the control should go on."""
    steps = control.steps
    if len(steps) < _ALIKE:
        return None
    recent = steps[-_MOST_STEPS:]
    over = len(steps) >= _MOST_STEPS or (len(steps) >= _LONG_STEPS and seconds > _LONG_S)
    points = [step.point for step in recent]
    alike = max(points) - min(points) <= _ALIKE and steps[-1].index < control.limit
    if over or control.point == steps[-1].point or alike:
        return _best(recent, control.limit)
    latest = [control.point, *(step.point for step in reversed(steps[-2:]))]
    if max(latest) < _LOW * control.points and all(step.index < control.limit for step in steps[-_ALIKE:]):
        return round(sum(latest) / len(latest))
    return _steady(control, low_memory=low_memory)


def _best(recent: tuple[ControlStep, ...], limit: float) -> int:
    """Return the point with the least objective within the limit; a lower point counts only if it was also slower."""
    best, least = recent[-1], inf
    for step in reversed(recent):
        value = step.objective + (1.0 if step.index > limit else 0.0)
        plausible = step.point >= best.point or step.index > best.index
        if least == inf or (value < least and plausible):
            best, least = step, value
    return best.point if best.index <= limit else max(step.point for step in recent)


def _steady(control: Control, *, low_memory: bool) -> int | None:
    """Return the weighted mean of the latest points, where they are near each other and near the limit."""
    length, bound = _patience(control, low_memory=low_memory)
    errors = [(step.index - control.limit) / control.limit for step in control.steps]
    latest = list(zip(control.steps, errors, strict=True))[-length - 1 :]
    if len(latest) > length:
        # One of them may be an outlier: the one without which the rest is nearest to the limit and below it.
        latest.remove(max(latest, key=lambda pair: abs(pair[1])))
    mean = sum(error for _, error in latest) / len(latest)
    distance = sum(abs(error) for _, error in latest) / len(latest)
    points = [step.point for step, _ in latest]
    steady = max(points) - min(points) <= _STEADY
    if distance > bound or mean > 0 or errors[-1] > _OVERSHOOT or not steady:
        return None
    weights = [sqrt(1.0 / max(abs(error), 1e-6)) / (4.0 if error > 0 else 1.0) for _, error in latest]
    return round(sum(weight * point for weight, point in zip(weights, points, strict=True)) / sum(weights))


def _patience(control: Control, *, low_memory: bool) -> tuple[int, float]:
    """Return how many of the latest steps must be near the limit, and how near."""
    if low_memory or control.point < 0.5 * control.points:
        return 2, 0.55
    if control.point < 0.73 * control.points:
        return 2, 0.40
    return (2, 0.20) if len(control.steps) >= _LONG_STEPS else (3, 0.20)
