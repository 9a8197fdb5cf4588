"""The search of Kareus (ml-energy/kareus): boosted trees and hypervolume, on total and on dynamic energy.

Notation
    E_dyn   E − P·t: dynamic energy, P the power of a GPU that waits for another
    E_tot   E_dyn + P·t of the two trees: no trees of their own
    HVI     area that the predicted point adds, objectives scaled to 0…1, reference 1.1 × the largest measured

Random choices first. Then every batch takes, in this order and without repetition, 40 % of largest HVI in (t, E_tot),
20 % of largest HVI in (t, E_dyn), 20 % of least predicted time, and the rest of largest uncertainty: the sum of the
standard deviations (s and J) of five trees that are trained on samples with replacement. LightGBM stands for XGBoost
(100 trees of 64 leaves, rate 0.3), without its random choice of 80 % of rows and columns. The order of the random
choices is seeded here; there it is not.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from wattune.core.frontier import History
from wattune.levels.overlap.hypervolume import improvement
from wattune.levels.overlap.search import (
    END,
    LAUNCH,
    C,
    Floats,
    MeasuredChoices,
    PartitionSpace,
    Places,
    observed,
    unmeasured,
)
from wattune.response.boosted_trees import Growth, grow

WAITING_W = 85.0
"""Of an A100 that waits in a transfer to its neighbour."""

_GROWTH = Growth(trees=100, leaves=64, rate=0.3, least_rows=1)
_SHARES = (0.4, 0.2, 0.2)
_BOOTSTRAPS = range(42, 47)
_BOOTSTRAP_SHARE = 0.8
_LOOSE = 1.1


@dataclass(frozen=True, slots=True, kw_only=True)
class KareusSearch:
    """The published rule; its budgets are 96 + 4 × 32 for large partitions, 48 + 4 × 16 and 36 + 3 × 16 for others."""

    seed: int
    initial: int = 96
    batch: int = 32
    batches: int | None = None
    """After which it ends; None: when nothing is left."""
    waiting_w: float = WAITING_W
    name: str = "kareus"

    def propose(self, space: PartitionSpace[C], history: History[C]) -> tuple[C, ...]:
        seen = observed(space, history)
        done = len(seen.places) - self.initial
        if done < 0:
            order = np.random.default_rng(self.seed).permutation(len(space))
            return tuple(unmeasured(space, history, order)[:-done])
        if self.batches is not None and done >= self.batches * self.batch:
            return ()
        left = np.setdiff1d(np.arange(len(space)), seen.places)
        if not len(left):
            return ()
        return tuple(
            space.choices[place] for place in left[_select(_Predicted.of(self, space, seen, left), self.batch)]
        )


@dataclass(frozen=True, slots=True, eq=False)
class _Predicted:
    """What the trees predict for the choices that are left, a row each."""

    time_s: Floats
    total_gain: Floats
    dynamic_gain: Floats
    uncertainty: Floats

    @classmethod
    def of(cls, rule: KareusSearch, space: PartitionSpace[C], seen: MeasuredChoices, left: Places) -> _Predicted:
        inputs = encoded(space)
        known, new = inputs[seen.places], inputs[left]
        time_s, energy_j = seen.values.T
        dynamic_j = energy_j - rule.waiting_w * time_s
        new_s, new_j = grow(known, time_s, growth=_GROWTH)(new), grow(known, dynamic_j, growth=_GROWTH)(new)
        return cls(
            new_s,
            _gain(time_s, energy_j, new_s, new_j + rule.waiting_w * new_s),
            _gain(time_s, dynamic_j, new_s, new_j),
            _scatter(known, time_s, new) + _scatter(known, dynamic_j, new),
        )


def encoded(space: PartitionSpace[C]) -> Floats:
    """Return the features, with a column of 0 and 1 for each launch and each end instead of their places."""
    columns: list[Floats] = []
    for name, values in zip(space.names, space.features.T, strict=True):
        if name in (LAUNCH, END):
            columns += [(values == value) * 1.0 for value in np.unique(values)]
        else:
            columns.append(values)
    return np.stack(columns, axis=1)


def _gain(time_s: Floats, energy_j: Floats, new_s: Floats, new_j: Floats) -> Floats:
    known, new = np.stack([time_s, energy_j], axis=1), np.stack([new_s, new_j], axis=1)
    low, high = known.min(axis=0), known.max(axis=0)
    span = np.maximum(high - low, 1e-12)
    return improvement((known - low) / span, (new - low) / span, (_LOOSE * high - low) / span)


def _scatter(known: Floats, values: Floats, new: Floats) -> Floats:
    count = max(int(_BOOTSTRAP_SHARE * len(values)), 1)
    samples = (np.random.default_rng(seed).integers(len(values), size=count) for seed in _BOOTSTRAPS)
    return np.asarray(np.std([grow(known[rows], values[rows], growth=_GROWTH)(new) for rows in samples], axis=0))


def _select(predicted: _Predicted, batch: int) -> list[int]:
    """Return the rows of a batch: the four groups in order, what they lack by the larger of the two gains."""
    sizes = [int(share * batch) for share in _SHARES]
    groups = (
        (sizes[0], -predicted.total_gain, predicted.total_gain > 0),
        (sizes[1], -predicted.dynamic_gain, predicted.dynamic_gain > 0),
        (sizes[2], predicted.time_s, np.isfinite(predicted.time_s)),
        (batch - sum(sizes), -predicted.uncertainty, np.isfinite(predicted.uncertainty)),
        (batch, -np.maximum(predicted.total_gain, predicted.dynamic_gain), np.isfinite(predicted.time_s)),
    )
    chosen: dict[int, None] = {}
    for size, cost, allowed in groups:
        fresh = [int(row) for row in np.argsort(cost, kind="stable") if allowed[row] and int(row) not in chosen]
        chosen.update(dict.fromkeys(fresh[: min(size, batch - len(chosen))]))
    return list(chosen)
