"""The form of the time of one layer against both clocks: the prior of `layer_curves`.

Notation (clocks over the highest, times over that at the highest clocks)
    x, y    core and memory clock
    M       time of the memory traffic: x^g/y^e, or what the path through the core allows below a clock x_m: (x_m/x)^k,
            whichever is longer. Bandwidth rises a little faster than the nominal clock on some GPUs (e > 1), and a
            faster core may disturb the memory (g > 0).
    r       memory over compute time at the highest clocks, each alone
    p       smoothness of the maximum of compute (1/x) and memory (r·M) time, from 1 (in turn) to 8 (in parallel)
    T       fixed + (1 − fixed)·p-norm of compute and memory, over its value at the highest clocks

The smooth maximum and its constant part are those of `physics/timing.py`. What belongs to the GPU (e and g) is the same
for all layers and is a grid; what belongs to a layer is drawn once, with a fixed seed.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from math import log

import numpy as np

from wattune.response.statistics import Floats

MEMBERS, _SEED = 400, 4211
"""So many that, with the residuals of `layer_posterior`, a dozen and more agree with three measurements."""

RATIO_SD = 2.0
"""Of log r over all layers: elementwise layers reach 3, large convolutions −2 (arithmetic intensity over the ridge)."""

_EXPONENTS = (0.85, 0.9, 0.95, 1.0, 1.05, 1.1, 1.15, 1.2, 1.25, 1.3)
_EXPONENT, _EXPONENT_SD = 1.0, 0.12
_DISTURBANCES, _DISTURBANCE = (0.0, 0.04, 0.08, 0.12), 0.05
_CORNER = 10.0
"""Sharpness of the corner between the two limits of the memory."""


@dataclass(frozen=True, slots=True, eq=False)
class Form:
    """Curves of all members for every GPU of the grid."""

    log_value: Floats
    """(GPUs, members, pairs); 0 at the highest clocks."""
    log_gpu: Floats
    """(GPUs,): log prior, up to a constant."""


@dataclass(frozen=True, slots=True, eq=False)
class TimeMembers:
    """What layers differ in, each (members, 1)."""

    log_ratio: Floats
    smoothness: Floats
    fixed: Floats
    passage: Floats
    passage_exponent: Floats


@lru_cache(maxsize=1)
def time_members() -> TimeMembers:
    """Draw the layers of the prior."""
    rng, shape = np.random.default_rng(_SEED), (MEMBERS, 1)
    some = rng.uniform(size=shape) < 0.6
    return TimeMembers(
        log_ratio=RATIO_SD * rng.standard_normal(shape),
        smoothness=np.exp(rng.uniform(0.0, log(8.0), shape)),
        # Host copies and kernels of a few microseconds hardly answer to clocks.
        fixed=np.where(some, np.exp(rng.uniform(log(0.002), log(0.3), shape)), rng.uniform(0.3, 1.0, shape)),
        passage=rng.uniform(0.1, 0.75, shape),
        passage_exponent=rng.uniform(1.0, 1.2, shape),
    )


def time_form(x: Floats, y: Floats) -> Form:
    """Evaluate T at pairs of clocks."""
    own = time_members()
    p, ratio = own.smoothness, np.exp(own.log_ratio)
    compute, way = x**-p, (own.passage / x) ** (own.passage_exponent * _CORNER)
    curves, log_gpu = [], []
    for e, g in product(_EXPONENTS, _DISTURBANCES):
        memory = ratio**p * ((x**g / y**e) ** _CORNER + way) ** (p / _CORNER)
        both = ((compute + memory) / (1.0 + ratio**p)) ** (1.0 / p)
        curves.append(np.log(own.fixed + (1.0 - own.fixed) * both))
        log_gpu.append(-0.5 * ((e - _EXPONENT) / _EXPONENT_SD) ** 2 - g / _DISTURBANCE)
    return Form(np.stack(curves), np.array(log_gpu))
