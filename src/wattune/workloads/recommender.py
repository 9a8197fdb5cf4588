"""Neural collaborative filtering (He et al. 2017, NeuMF) on MovieLens-20M in the shape of MLPerf Training 0.5.

Factors of 64, dense layers of 256, 256, 128 and 64. Tables hold nearly all parameters, so that their gradients and the
optimizer are much of the work.
"""

from __future__ import annotations

from itertools import pairwise

from wattune.workloads.image_layers import linear
from wattune.workloads.operation import Operation
from wattune.workloads.recurrent import look_up

_USERS, _ITEMS = 138_493, 26_744
_FACTORS = 64
_DENSE = (256, 256, 128, 64)


def ncf() -> tuple[Operation, ...]:
    """The operations for one pair of a user and an item."""
    half = _DENSE[0] // 2
    tables = [
        look_up(f"{kind}/{use}", rows=rows, width=width, count=1)
        for kind, rows in (("user", _USERS), ("item", _ITEMS))
        for use, width in (("factors", _FACTORS), ("dense", half))
    ]
    product = Operation(name="product", flops=_FACTORS, reads=2 * _FACTORS, writes=_FACTORS, backward_passes=5 / 3)
    dense = []
    for index, (inputs, outputs) in enumerate(pairwise(_DENSE)):
        dense.append(linear(f"dense{index + 1}", inputs, outputs))
        dense.append(
            Operation(name=f"dense{index + 1}/relu", flops=outputs, reads=outputs, writes=outputs, backward_passes=1.5)
        )
    return (*tables, product, *dense, linear("head", _FACTORS + _DENSE[-1], 1))
