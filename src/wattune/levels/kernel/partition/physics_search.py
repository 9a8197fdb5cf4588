"""Our search of a partition: expected maximin improvement over a surrogate that the physics shapes.

Notation
    δ       tolerance: a choice improves by what it gains beyond a factor of 1 + δ
    EMI     expected factor, as a logarithm, by which a choice extends the measured points in time and in energy, beyond
            1 + δ (`search.hypervolume`)
    ε       factor, minus 1, by which the measured points miss the frontier

ε is the largest gap of the frontier, so the choice that may close the largest gap comes next, whatever area it adds.
Without δ a search spends most measurements on differences that nobody would notice. Every fourth choice is made with
wider standard deviations: surprises lie where the surrogate is sure of itself. In a batch each choice is taken as
measured with its expected value before the next one is chosen (Kriging believer, Ginsbourger et al. 2010). The first
choices are those about which least is known, among those that the physics expects to be fast. What is still missing is
estimated by drawing whole functions from the posterior, at the choices of largest expected hypervolume improvement.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from wattune.core.frontier import History
from wattune.levels.kernel.partition.search import C, Floats, MeasuredChoices, PartitionSpace, observed
from wattune.levels.kernel.partition.surrogate import Surrogate, fit_surrogate
from wattune.search.hypervolume import epsilon, expected_improvement, expected_maximin, front_places, hypervolume

_MARGIN, _MARGIN_SHARE = 0.06, 0.2
"""The reference lies beyond the ends of the frontier by this, or by this share of its extent."""

_DESIGN_SCALE, _DESIGN_SCATTER = 0.3, 0.05
_DRAWS, _DRAWN = 64, 300
_MOST_REPEATS = 3

_WIDE_EVERY, _WIDE = 4, 2.5
"""Every fourth choice trusts the surrogate less, by this factor of its standard deviations."""


@dataclass(frozen=True, slots=True)
class Remaining:
    """What a search expects to be still missing."""

    hypervolume_share: float
    """Of the hypervolume that all choices together would have."""
    epsilon: float


@dataclass(frozen=True, slots=True, kw_only=True)
class PhysicsSearch:
    """Designed first choices, then batches of largest expected improvement."""

    seed: int
    initial: int = 5
    batch: int = 1
    tolerance: float = 0.004
    enough: float | None = None
    """Expected ε at which the search ends; None: when nothing is left."""
    fit_from: int = 8
    """Measurements from which on the parameters of the processes are fitted."""
    name: str = "wattune"

    def propose(self, space: PartitionSpace[C], history: History[C]) -> tuple[C, ...]:
        seen = observed(space, history)
        if len(seen.places) == len(space):
            return ()
        surrogate = self.surrogate(space, seen)
        if len(seen.places) < self.initial:
            return tuple(space.choices[place] for place in self._designed(surrogate, seen))
        if self.enough is not None and self._remaining(surrogate, seen).epsilon <= self.enough:
            return ()
        repeated = _doubtful(surrogate, seen, self.tolerance)
        fresh = self._improving(surrogate, seen, self.batch - len(repeated))
        return tuple(space.choices[place] for place in (*repeated, *fresh))

    def remaining(self, space: PartitionSpace[C], history: History[C]) -> Remaining:
        """Estimate what further measurements would add."""
        seen = observed(space, history)
        return self._remaining(self.surrogate(space, seen), seen)

    def surrogate(self, space: PartitionSpace[C], seen: MeasuredChoices) -> Surrogate:
        return fit_surrogate(space, seen, fit_from=self.fit_from)

    def _designed(self, surrogate: Surrogate, seen: MeasuredChoices) -> list[int]:
        """Choose where the surrogate knows least, discounted by expected slowness; the seed scatters the choice."""
        random = np.random.default_rng((self.seed, len(seen.places)))
        chosen: list[int] = []
        while len(chosen) < min(self.batch, self.initial - len(seen.places)):
            slower = surrogate.logs[:, 0] - surrogate.logs[:, 0].min()
            scatter = _DESIGN_SCATTER * random.standard_normal(len(slower))
            merit = np.log(surrogate.sd[:, 0]) - slower / _DESIGN_SCALE + scatter
            merit[[*seen.places, *chosen]] = -np.inf
            chosen.append(int(merit.argmax()))
            surrogate = surrogate.believed(chosen[-1])
        return chosen

    def _improving(self, surrogate: Surrogate, seen: MeasuredChoices, count: int) -> list[int]:
        points = surrogate.smoothed(seen)[0]
        chosen: list[int] = []
        while len(chosen) < min(count, len(surrogate.logs) - len(seen.places)):
            merit = self._merit(surrogate, points)
            merit[[*seen.places, *chosen]] = -1.0
            chosen.append(int(merit.argmax()))
            if len(chosen) < count:
                points = np.concatenate([points, surrogate.logs[chosen[-1:]]])
                surrogate = surrogate.believed(chosen[-1])
        return chosen

    def _merit(self, surrogate: Surrogate, points: Floats) -> Floats:
        wide = _WIDE if len(points) % _WIDE_EVERY == 0 else 1.0
        return expected_maximin(points, surrogate.logs, wide * surrogate.sd, float(np.log1p(self.tolerance)))

    def _remaining(self, surrogate: Surrogate, seen: MeasuredChoices) -> Remaining:
        points = surrogate.smoothed(seen)[0]
        limit = reference(points, surrogate.logs)
        merit = expected_improvement(points, surrogate.logs, surrogate.sd, limit)
        merit[seen.places] = -1.0
        open_places = np.argsort(-merit, kind="stable")[: min(_DRAWN, len(merit) - len(seen.places))]
        if not len(open_places):
            return Remaining(0.0, 0.0)
        random = np.random.default_rng((self.seed, len(seen.places)))
        drawn = np.stack(
            [
                surrogate.model[open_places, column] + process.draws(inputs.taken(open_places), _DRAWS, random)
                for column, (process, inputs) in enumerate(zip(surrogate.processes, surrogate.inputs, strict=True))
            ],
            axis=2,
        )
        have = hypervolume(points, limit)
        missing = [_missing(points, draw, limit, have) for draw in drawn]
        return Remaining(*(float(value) for value in np.mean(missing, axis=0)))


def reference(points: Floats, expected: Floats) -> Floats:
    """Return the reference point of logarithms: somewhat beyond the ends of the measured and the expected frontier."""
    both = np.concatenate([points, expected])
    front = both[front_places(both)]
    extent = np.ptp(front, axis=0)
    ends = np.maximum(front.max(axis=0), points[front_places(points)].max(axis=0))
    return np.asarray(ends + np.maximum(_MARGIN_SHARE * extent, _MARGIN))


def _missing(points: Floats, draw: Floats, limit: Floats, have: float) -> tuple[float, float]:
    """Return the share of hypervolume and the ε that the points lack if the draw is true."""
    both = np.concatenate([points, draw])
    front = both[front_places(both)]
    return 1.0 - have / hypervolume(front, limit), epsilon(np.exp(points), np.exp(front))


def _doubtful(surrogate: Surrogate, seen: MeasuredChoices, tolerance: float) -> list[int]:
    """Return the choice on the frontier whose noise is largest, if that exceeds the tolerance and repeating helps."""
    noisy = np.sqrt(seen.variance).max(axis=1)
    if not (noisy > tolerance / 2).any():
        return []
    means, sds = surrogate.smoothed(seen)
    front = [row for row in front_places(means) if seen.repeats[row] < _MOST_REPEATS and noisy[row] > tolerance / 2]
    worst = max(front, key=lambda row: float(sds[row].max()), default=None)
    # Every other measurement at most repeats one, so that noise does not end the search for better choices.
    if worst is None or seen.repeats.sum() >= 2 * len(seen.places):
        return []
    return [int(seen.places[worst])]
