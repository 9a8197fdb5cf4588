"""Parameters of a GPU and of the workloads that were measured on it under power limits, all at once.

What belongs to the GPU is learned from all curves, what belongs to a curve from its own points and from the other batch
sizes of its workload. The solution is the most likely one under the priors of `limit_prior`, found by Levenberg's and
Marquardt's method on the normal equations, whose blocks (GPU × curve, curve × curve) are filled from differences that
move one parameter of every curve at a time: fourteen evaluations for any number of curves.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from wattune.physics.fit.limit_model import Board, predict
from wattune.physics.fit.limit_prior import BOARD, OWN, CurvePrior, LimitCurve, curve_prior
from wattune.physics.load_table import Floats

# Repeated epochs differ by 1 to 5 % in time and by about 2 % in mean power; time matters most, so it leads.
_TIME_SD = 0.0125
_POWER_SD = 0.02

_STEP = 1e-4
_PASSES = 60
_ENOUGH = 1e-4
"""A pass that lowers the cost by less than this share is the last."""
_TRIES = 8
_APART = 0.2
"""How far the second start lies from the first, in the logarithm of a curve's parameter."""


@dataclass(frozen=True, slots=True, eq=False)
class LimitFit:
    """Fitted parameters."""

    board: Board
    own: Floats
    """(curves, 6): a row for each curve, in the columns of `limit_model.Curves`."""
    highest_w: float

    def predict(self, place: int, limit_w: Floats) -> tuple[Floats, Floats]:
        """Seconds per epoch and mean watts of the curve at that place, under these limits."""
        epochs = predict(self.board, self.own[[place]], limit_w[None] / self.highest_w)
        return np.exp(epochs.log_time[0]), np.exp(epochs.log_power[0]) * self.highest_w


def fit_limits(curves: Sequence[LimitCurve], used: Sequence[Sequence[int]]) -> LimitFit:
    """The fit to the points of each curve that are `used`; a curve of which none is gets what its neighbours say."""
    problem = _Problem.of(curves, used)
    solved = min((_solve(problem, guess) for guess in problem.guesses()), key=problem.cost)
    return LimitFit(Board(*solved[: len(BOARD)]), solved[len(BOARD) :].reshape(len(curves), OWN), problem.highest_w)


@dataclass(frozen=True, slots=True, eq=False)
class _Problem:
    limit: Floats
    log_time: Floats
    log_power: Floats
    weight: Floats
    """(curves, limits): 1 where a point is used."""
    highest_w: float
    prior: CurvePrior

    @classmethod
    def of(cls, curves: Sequence[LimitCurve], used: Sequence[Sequence[int]]) -> _Problem:
        highest_w = float(max(curve.limit_w.max() for curve in curves))
        width = max(len(curve.limit_w) for curve in curves)
        weight = np.zeros((len(curves), width))
        for row, places in enumerate(used):
            weight[row, list(places)] = 1.0
        # Rows are filled up with their last value; the weight keeps that from counting.
        limit, time, power = (
            np.array([np.pad(values, (0, width - len(values)), mode="edge") for values in column])
            for column in zip(*((curve.limit_w, curve.time_s, curve.power_w) for curve in curves), strict=True)
        )
        prior = curve_prior(curves, used)
        return cls(limit / highest_w, np.log(time), np.log(power / highest_w), weight, highest_w, prior)

    def first_guess(self) -> Floats:
        """The prior's means, with time and core power of each curve near its fastest used point."""
        own = self.prior.mean.reshape(-1, OWN).copy()
        for row, weight in enumerate(self.weight > 0):
            if weight.any():
                own[row, 0] = self.log_time[row][weight].min() - 0.3
                own[row, 2] = np.log(np.clip(np.exp(self.log_power[row][weight].max()) - 0.2, 0.1, 1.5))
        return np.concatenate([[prior.mean for prior in BOARD], own.ravel()])

    def guesses(self) -> tuple[Floats, Floats]:
        """Two places to start from: curves can be caught where a limit no longer moves the clock, seldom from both."""
        first = self.first_guess()
        apart = np.full(len(first), _APART)
        apart[: len(BOARD)] = [prior.sd for prior in BOARD]
        return first, first + apart * np.random.default_rng(0).standard_normal(len(first))

    def errors(self, vector: Floats) -> Floats:
        """(curves, 2·limits): prediction minus measurement, in standard deviations."""
        board, own = Board(*vector[: len(BOARD)]), vector[len(BOARD) :].reshape(-1, OWN)
        epochs = predict(board, own, self.limit)
        time = self.weight * (epochs.log_time - self.log_time) / _TIME_SD
        power = self.weight * (epochs.log_power - self.log_power) / _POWER_SD
        return np.hstack([time, power])

    def cost(self, vector: Floats) -> float:
        """Half the sum of squares; infinite where the parameters make no sense."""
        with np.errstate(all="ignore"):
            total = 0.5 * float((self.errors(vector) ** 2).sum()) + self.prior_cost(vector)
        return total if np.isfinite(total) else np.inf

    def prior_cost(self, vector: Floats) -> float:
        board, own = self._deviations(vector)
        return 0.5 * float((board**2).sum() + own @ self.prior.precision @ own)

    def _deviations(self, vector: Floats) -> tuple[Floats, Floats]:
        """From the priors: of the board in standard deviations, of the curves plainly."""
        board = np.array([(value - prior.mean) / prior.sd for value, prior in zip(vector, BOARD, strict=False)])
        return board, vector[len(BOARD) :] - self.prior.mean

    def normal_equations(self, vector: Floats) -> tuple[Floats, Floats]:
        """Curvature (JᵀJ) and slope (Jᵀr) of the cost."""
        errors = self.errors(vector)
        shared = self._differences(vector, errors, [slice(place, place + 1) for place in range(len(BOARD))])
        own = self._differences(vector, errors, [slice(len(BOARD) + place, None, OWN) for place in range(OWN)])
        curvature, slope = self._prior_part(vector)
        head = len(BOARD)
        curvature[:head, :head] += np.einsum("ima,imb->ab", shared, shared)
        slope[:head] += np.einsum("ima,im->a", shared, errors)
        slope[head:] += np.einsum("ima,im->ia", own, errors).ravel()
        for row in range(len(errors)):
            block = slice(head + OWN * row, head + OWN * (row + 1))
            curvature[:head, block] += shared[row].T @ own[row]
            curvature[block, :head] += own[row].T @ shared[row]
            curvature[block, block] += own[row].T @ own[row]
        return curvature, slope

    def _differences(self, vector: Floats, errors: Floats, parts: list[slice]) -> Floats:
        """(curves, 2·limits, parts): how the errors change when one part of the parameters is moved."""
        moved = []
        for part in parts:
            other = vector.copy()
            other[part] += _STEP
            moved.append((self.errors(other) - errors) / _STEP)
        return np.stack(moved, axis=-1)

    def _prior_part(self, vector: Floats) -> tuple[Floats, Floats]:
        head, size = len(BOARD), len(vector)
        sd = np.array([prior.sd for prior in BOARD])
        board, own = self._deviations(vector)
        curvature = np.zeros((size, size))
        curvature[:head, :head] = np.diag(sd**-2)
        curvature[head:, head:] = self.prior.precision
        return curvature, np.concatenate([board / sd, self.prior.precision @ own])


def _solve(problem: _Problem, vector: Floats) -> Floats:
    """The parameters of least cost near `vector`."""
    cost, damping = problem.cost(vector), 1e-2
    for _ in range(_PASSES):
        curvature, slope = problem.normal_equations(vector)
        for _ in range(_TRIES):
            damped = curvature + damping * np.diag(np.diag(curvature))
            # A parameter moves by a factor of e at most in one pass.
            step = np.clip(np.linalg.solve(damped, -slope), -1.0, 1.0)
            lower = problem.cost(vector + step)
            if lower < cost:
                break
            damping *= 5.0
        else:
            return vector
        vector, saved, cost = vector + step, cost - lower, lower
        damping = max(damping / 5.0, 1e-7)
        if saved < _ENOUGH * max(cost, 1.0):
            return vector
    return vector
