"""Programs that others ran on a V100 SXM2 at 13 clocks, as the simulated GPU runs them.

Source: zyjopensource/GPU-DVFS-Dataset.

A program's published speeds and its power at the highest clock say what kind of work it is; how power falls with the
clock is left to the simulated GPU. Notation, all over the time of an iteration at the highest clock:

    compute     time of the arithmetic alone, which follows the clock
    memory      time of the traffic alone, which follows the clock below the memory's knee
    host        time that nothing changes
"""

from __future__ import annotations

from dataclasses import replace

from wattune.core.workload import Phase, Pipe, Workload
from wattune.physics.gpu_model import GpuModel
from wattune.physics.spend import tabulate

CLOCKS_MHZ = (757, 825, 885, 952, 1012, 1080, 1140, 1207, 1275, 1335, 1402, 1462, 1530)

_STEPS = 4
_NEAR_W = 1e-9

# Every second program of the published list: the others set the catalogue's numbers. Shares are our fit of the speeds
# (mean error 0.6 %); the last column is the published power at 1530 MHz.
_PROGRAMS = (
    ("3MM", 0.841, 0.837, 0.000, 206),
    ("Schmidt", 0.675, 0.747, 0.160, 73),
    ("Walsh", 0.468, 0.989, 0.000, 146),
    ("CFD", 0.753, 0.916, 0.000, 176),
    ("CNN_1.8M", 0.026, 0.064, 0.931, 153),
    ("SortNet", 0.574, 0.980, 0.000, 158),
    ("RNN", 0.720, 0.803, 0.087, 185),
    ("SRAD", 0.593, 0.973, 0.000, 180),
    ("Diffusion", 0.607, 0.961, 0.000, 249),
    ("BWtest", 0.382, 0.997, 0.000, 143),
    ("GeMM", 0.947, 0.687, 0.000, 244),
    ("ViT_t", 0.021, 0.017, 0.977, 63),
    ("ViT_b", 0.712, 0.924, 0.000, 123),
    ("DeiT_t", 0.020, 0.001, 0.979, 63),
    ("RegNet", 0.703, 0.938, 0.000, 110),
    ("ResN101", 0.775, 0.895, 0.000, 126),
    ("VGG19", 0.736, 0.907, 0.000, 130),
)


def unseen_programs(model: GpuModel) -> tuple[Workload, ...]:
    """Return the programs whose power at lower clocks was not used to set the GPU's numbers."""
    return tuple(
        _drawing(model, _program(model, name, compute, memory, host), float(power_w))
        for name, compute, memory, host, power_w in _PROGRAMS
    )


def _program(model: GpuModel, name: str, compute: float, memory: float, host: float) -> Workload:
    """Make an iteration of one second at the highest clock."""
    highest_mhz = model.clocks[0].sm_mhz[-1]
    unit, dram = model.unit(Pipe.FP32), model.memory
    work = Phase(
        name="work",
        flops=compute * unit.peak_flops * unit.efficiency * highest_mhz / unit.reference_mhz,
        dram_bytes=memory * dram.bandwidth_bytes_per_s * dram.efficiency,
    )
    waits = (Phase(name="host", host_stall_s=host),) if host else ()
    return Workload(name=name, phases=(work, *waits))


def _drawing(model: GpuModel, workload: Workload, power_w: float) -> Workload:
    """Set the activity at which the workload draws this power at the highest clock; 0 where it draws more without any.

    Power is linear in activity but for the leakage of a warmer chip, so a few secant steps are enough.
    """
    activity, least_w = 1.0, _highest_w(model, workload, 0.0)
    for _ in range(_STEPS):
        activity *= max(power_w - least_w, 0.0) / max(_highest_w(model, workload, activity) - least_w, _NEAR_W)
    return _active(workload, activity)


def _highest_w(model: GpuModel, workload: Workload, activity: float) -> float:
    return float(tabulate(model, _active(workload, activity))[0].mean_power_w[-1])


def _active(workload: Workload, activity: float) -> Workload:
    return replace(workload, phases=tuple(replace(phase, activity=activity) for phase in workload.phases))
