"""Two streams of one GPU: computation in phases, and a collective launched somewhere among them.

Notation
    a_k, b_k  time of phase k alone, and beside the collective from begin to end
    K         time of the collective alone
    r_k       progress of the collective beside phase k, relative to its progress alone: 0 < r ≤ 1
    L         what is left of the collective, in seconds alone

Phases run in order. Beside the collective, phase k advances by 1/b_k per second and L shrinks by r_k per second; when L
is 0 the phase goes on alone. After the last phase, or after one that waits for the collective, L shrinks by 1 per
second. All arrays broadcast: the first axis of phases is followed by any axes of settings and clocks.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from wattune.physics.gpu_parts import Floats


@dataclass(frozen=True, slots=True, eq=False)
class StreamPhases:
    """Phases of computation alone and beside a collective; (phases, …)."""

    alone_s: Floats
    alone_w: Floats
    beside_s: Floats
    beside_w: Floats
    progress: Floats
    """r, how fast the collective advances beside each phase."""


@dataclass(frozen=True, slots=True, eq=False)
class StreamCost:
    """What two streams took."""

    time_s: Floats
    compute_j: Floats
    """Of the computation, at the powers of its phases."""
    comm_s: Floats
    """While the collective ran, beside computation or not."""
    exposed_s: Floats
    """While it ran beside nothing."""


def two_streams(phases: StreamPhases, comm_s: Floats, before_s: Floats, wait_after: Floats | None = None) -> StreamCost:
    """Run phases, and the collective after `before_s` of computation; inf: after all of it.

    `wait_after` is the place of the phase after which computation waits for the collective; without it, the last.
    """
    shape = np.broadcast_shapes(phases.alone_s.shape[1:], phases.beside_s.shape[1:], comm_s.shape, before_s.shape)
    if wait_after is not None:
        shape = np.broadcast_shapes(shape, wait_after.shape)
    left_s, before_s = np.broadcast_to(comm_s, shape), np.broadcast_to(before_s, shape)
    time_s, compute_j, active_s, exposed_s = (np.zeros(shape) for _ in range(4))
    for place in range(len(phases.alone_s)):
        alone_s, beside_s, progress = phases.alone_s[place], phases.beside_s[place], phases.progress[place]
        # First before the launch, then beside the collective until that ends, then alone again.
        first = np.minimum(before_s / alone_s, 1.0)
        before_s = before_s - first * alone_s
        together_s = np.minimum((1.0 - first) * beside_s, left_s / progress)
        second = together_s / beside_s
        left_s = np.maximum(left_s - together_s * progress, 0.0)
        apart_s = (1.0 - second) * alone_s
        time_s, active_s = time_s + apart_s + together_s, active_s + together_s
        compute_j = compute_j + apart_s * phases.alone_w[place] + together_s * phases.beside_w[place]
        if wait_after is not None:
            waits = wait_after == place
            exposed_s, left_s = np.where(waits, exposed_s + left_s, exposed_s), np.where(waits, 0.0, left_s)
    exposed_s = exposed_s + left_s
    return StreamCost(time_s + exposed_s, compute_j, active_s + exposed_s, exposed_s)
