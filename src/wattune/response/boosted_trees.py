"""Gradient-boosted regression trees: a thin wrapper of LightGBM, which the `boost` extra installs.

Training is deterministic: one thread, row-wise histograms, a fixed seed.
"""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from wattune.core.errors import NotSupported

if TYPE_CHECKING:
    import lightgbm

Floats = NDArray[np.float64]

MISSING = "boosted trees need LightGBM, which is not installed"
MISSING_HINT = "pip install 'wattune[boost]'"


@dataclass(frozen=True, slots=True, kw_only=True)
class Growth:
    """Parameters of training: common values for tables of some thousand rows and few columns."""

    trees: int = 300
    leaves: int = 31
    rate: float = 0.06
    least_rows: int = 20
    """In a leaf."""


DEFAULT_GROWTH = Growth()


@dataclass(frozen=True, slots=True, eq=False)
class BoostedTrees:
    """Trained trees; called with rows of inputs they predict one number each."""

    booster: lightgbm.Booster

    def __call__(self, inputs: Floats) -> Floats:
        return np.asarray(self.booster.predict(inputs, num_threads=1), dtype=np.float64)


def installed() -> bool:
    """Return whether LightGBM is installed."""
    return importlib.util.find_spec("lightgbm") is not None


def grow(inputs: Floats, targets: Floats, *, growth: Growth = DEFAULT_GROWTH) -> BoostedTrees:
    """Train trees on (rows, columns) of inputs and (rows,) of targets; `NotSupported` without LightGBM."""
    if not installed():
        raise NotSupported(MISSING, hint=MISSING_HINT)
    import lightgbm

    parameters = {
        "objective": "regression",
        "num_leaves": growth.leaves,
        "learning_rate": growth.rate,
        "min_data_in_leaf": growth.least_rows,
        "num_threads": 1,
        "deterministic": True,
        "force_row_wise": True,
        "seed": 0,
        "verbosity": -1,
    }
    rows = lightgbm.Dataset(inputs, targets, params={"verbosity": -1})
    return BoostedTrees(lightgbm.train(parameters, rows, num_boost_round=growth.trees))
