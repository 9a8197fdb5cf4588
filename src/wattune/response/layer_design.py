"""The pairs of clocks whose measurement says most about all others.

They are chosen before anything is measured, by the prior of `layer_forms`: those that leave the least mean variance of
log time over all pairs (I-optimal design, with the members as a Gaussian prior). They are taken one by one, then
exchanged while that lowers the variance.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from wattune.core.errors import InputError
from wattune.response.layer_forms import time_form
from wattune.response.statistics import Floats, likelihood_weights

_NOISE, _SCALE = 0.005, 4.0
"""Error of a measurement, and variance of the log time of a layer."""

_EXCHANGES = 5


def pairs_to_measure(sm_mhz: Sequence[int], mem_mhz: Sequence[int], count: int) -> tuple[tuple[int, int], ...]:
    """Choose pairs of a core and a memory clock, highest first, out of all combinations of these clocks."""
    pairs = sorted({(core, memory) for core in sm_mhz for memory in mem_mhz}, reverse=True)
    if not 1 <= count <= len(pairs):
        raise InputError(
            f"cannot choose {count} of {len(pairs)} pairs of clocks", hint=f"choose between 1 and {len(pairs)}"
        )
    covariance = _prior_covariance(np.array(pairs, dtype=np.float64))
    chosen: list[int] = []
    for _ in range(count):
        chosen.append(_best_addition(covariance, chosen))
    for _ in range(_EXCHANGES):
        before = set(chosen)
        for _ in range(count):
            rest = chosen[1:]
            chosen = [*rest, _best_addition(covariance, rest)]
        if set(chosen) == before:
            break
    return tuple(pairs[place] for place in sorted(chosen))


def _prior_covariance(clocks: Floats) -> Floats:
    relative = clocks / clocks.max(axis=0)
    form = time_form(relative[:, 0], relative[:, 1])
    # One GPU of the grid for each member, in turn: a good sample of all combinations.
    members = np.arange(form.log_value.shape[1])
    gpus = members % len(form.log_gpu)
    weights = likelihood_weights(form.log_gpu[gpus])
    curves = form.log_value[gpus, members]
    centred = curves - weights @ curves
    return np.asarray((centred * weights[:, np.newaxis]).T @ centred + _SCALE)


def _best_addition(covariance: Floats, chosen: Sequence[int]) -> int:
    """Return the pair whose measurement lowers the sum of variances most, once the chosen ones are measured."""
    for place in chosen:
        column = covariance[:, place]
        covariance = covariance - np.outer(column, column) / (column[place] + _NOISE**2)
    gain = (covariance**2).sum(axis=0) / (np.diag(covariance) + _NOISE**2)
    gain[list(chosen)] = -1.0
    return int(gain.argmax())
