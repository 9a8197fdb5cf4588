"""The segments found for a chain of layers equal those of trying every assignment, on small chains."""

from itertools import product
from math import inf

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from wattune.core.setting import Setting
from wattune.levels.layer.costs import LayerCosts
from wattune.levels.layer.segments import SegmentSolver
from wattune.levels.layer.switching import SwitchCost, segment_times_s

PRICES_W = (0.0, 20.0, 150.0, 3000.0)


@st.composite
def chains(draw: st.DrawFn) -> LayerCosts:
    layers = draw(st.integers(1, 5))
    memories = draw(st.integers(1, 2))
    cores = draw(st.integers(1, 3))
    clocks = tuple(
        # The highest clocks are left to the driver, as in the costs of a simulated GPU.
        Setting(
            1000 + 100 * core if core < cores - 1 else None, 5000 + 1000 * memory if memory < memories - 1 else None
        )
        for memory in reversed(range(memories))
        for core in reversed(range(cores))
    )
    random = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    time_s = random.uniform(0.3, 3.0, (layers, 1)) * random.uniform(0.5, 1.5, (layers, len(clocks)))
    return LayerCosts(
        workload="random",
        gpu="random",
        simulated=True,
        names=tuple(f"layer{number}" for number in range(layers)),
        settings=clocks,
        time_s=time_s,
        energy_j=random.uniform(50.0, 300.0, time_s.shape) * time_s,
        waiting_w=40.0,
    )


SWITCHING = st.builds(
    SwitchCost,
    sm_latency_s=st.sampled_from((0.0, 1.0, 3.0, 6.0)),
    mem_latency_s=st.sampled_from((0.0, 2.0, 5.0)),
    sm_stall_s=st.sampled_from((0.0, 0.1, 0.5)),
    mem_stall_s=st.sampled_from((0.0, 0.2, 1.0)),
    dwell=st.sampled_from((1.0, 1.5)),
)


def ring_cost(
    costs: LayerCosts, columns: tuple[int, ...], switching: SwitchCost, dwell_s: float
) -> tuple[float, float]:
    """Return time and energy of an assignment, or infinity where a segment is too short."""
    chosen = [costs.settings[column] for column in columns]
    time_s = costs.time_s[np.arange(len(columns)), columns]
    starts = np.flatnonzero(np.array(columns) != np.roll(columns, 1))
    if len(starts) and min(segment_times_s(time_s, starts)) < dwell_s * (1 - 1e-12):
        return inf, inf
    stalls_s = sum(switching.stall_s(chosen[place - 1], chosen[place]) for place in range(len(columns)))
    energy_j = costs.energy_j[np.arange(len(columns)), columns].sum() + stalls_s * costs.waiting_w
    return time_s.sum() + stalls_s, energy_j


@settings(max_examples=120, deadline=None)
@given(chains(), SWITCHING, st.booleans())
def test_equals_the_best_of_all_assignments(costs: LayerCosts, switching: SwitchCost, core_only: bool) -> None:
    dwell_s = switching.dwell_s(changes_memory=not core_only)
    every = [
        ring_cost(costs, columns, switching, dwell_s)
        for columns in product(range(len(costs.settings)), repeat=len(costs.names))
        if not core_only or len({costs.settings[column].mem_mhz for column in columns}) == 1
    ]
    for ring in SegmentSolver(costs, switching, core_only=core_only).rings(PRICES_W):
        best = min(energy_j + ring.price_w * time_s for time_s, energy_j in every)
        time_s, energy_j = ring_cost(costs, tuple(ring.columns.tolist()), switching, dwell_s)
        assert energy_j + ring.price_w * time_s <= best * (1 + 1e-9)
        assert ring.bound <= best * (1 + 1e-9)
        assert ring.bound >= best * (1 - 1e-9)
