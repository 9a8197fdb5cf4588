"""A small network on a made-up GPU: forward and backward layers that differ in what limits them."""

from __future__ import annotations

import numpy as np

from wattune.core.setting import DRIVER_DEFAULT, Setting
from wattune.levels.layer.comparison import LayerComparison, compare_strategies
from wattune.levels.layer.costs import STEP, LayerCosts
from wattune.levels.layer.switching import SwitchCost

CLOCKS_MHZ = (1500, 1350, 1200, 1050, 900)
NAMES = (
    *(f"forward/{name}" for name in ("conv1", "norm1", "conv2", "norm2")),
    *(f"backward/{name}" for name in ("norm2", "conv2", "norm1", "conv1")),
    "optimizer",
)
SWITCHING = SwitchCost(sm_latency_s=0.002, mem_latency_s=0.002, sm_stall_s=1e-4, mem_stall_s=1e-4)


def sample_costs(*, simulated: bool = True) -> LayerCosts:
    """Convolutions slow down with the core clock, the others do not; all of them draw less at lower clocks."""
    clocks = np.array(CLOCKS_MHZ, dtype=float) / CLOCKS_MHZ[0]
    bound = np.array([0.95 if "conv" in name else 0.05 for name in NAMES])[:, None]
    length_s = np.array([0.03 if "conv" in name else 0.05 for name in NAMES])[:, None]
    time_s = length_s * (bound / clocks + 1.0 - bound)
    power_w = 60.0 + 140.0 * clocks**2.5 * (0.6 + 0.4 * bound)
    return LayerCosts(
        workload="net:8",
        gpu="NVIDIA Sample",
        simulated=simulated,
        names=NAMES,
        settings=(DRIVER_DEFAULT, *(Setting(sm_mhz) for sm_mhz in CLOCKS_MHZ[1:])),
        time_s=time_s,
        energy_j=time_s * power_w,
        waiting_w=70.0,
        clocks_mhz=tuple((sm_mhz, 7001) for sm_mhz in CLOCKS_MHZ),
    )


def sample_comparison(*, simulated: bool = True, switching: SwitchCost = SWITCHING) -> LayerComparison:
    """Compare all strategies but intensity on the sample."""
    return compare_strategies(sample_costs(simulated=simulated), switching, scope=STEP, slowdown=0.05, spread=0.3)
