"""The catalogue's GPUs beside real loads: stages and matrix products at locked clocks, epochs under power limits.

Nothing is fitted here. What the catalogue's numbers were set with is said in each row.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean

import numpy as np

from wattune.core.voltage import voltage
from wattune.core.workload import Phase, Pipe, Workload
from wattune.physics.catalog import load_model
from wattune.physics.gpu_parts import Floats
from wattune.physics.load_table import LoadTable
from wattune.physics.spend import tabulate
from wattune.workloads.catalog import make_workload
from wattune_bench.datasets import stage_profiles, zeus_tables
from wattune_bench.datasets.stage_profiles import StageSweep, read_stage_profile
from wattune_bench.physics.judgement import Judgement, relative
from wattune_bench.physics.published import MEASURED_FROM
from wattune_bench.physics.volta import unseen_programs
from wattune_bench.result import Row

_STAGES = "stage_profile_gpt3-175b_a100"
_STAGE_GPUS = {
    "a100-80gb": "the catalogue, which was set with these stages",
    "a100": "the catalogue: DGEMM on another A100; FP16 power as of these stages",
}
_HELD_FROM_MHZ = 1320
"""Above, time hardly falls with the requested clock: the stages are held back by the limit of a moment."""
_SLOWDOWNS = (0.05, 0.10, 0.15)


def _stage(instruction: str, tflop: float, wait_s: float) -> Workload:
    """Make a stage: matrix products, and a wait for other GPUs. Both numbers are our fit of the times."""
    flops = tflop * 1e12
    multiply = Phase(name="multiply", flops=flops, pipe=Pipe.FP16, dram_bytes=flops / 300)
    return Workload(name=instruction, phases=(multiply, Phase(name="wait", host_stall_s=wait_s)))


_STAGE = {"forward": _stage("forward", 6.87, 0.0045), "backward": _stage("backward", 12.68, 0.0071)}


@dataclass(frozen=True, slots=True)
class _Epochs:
    """ResNet-50 on ImageNet as a GPU trained it: its host's stall, and its host's loading beside the GPU, per image."""

    gpu: str
    pipe: Pipe
    stall_s: float
    loading_s: float


_EPOCHS = {
    "summary_power_v100": _Epochs("v100", Pipe.FP32, 0.00019, 0.0),
    "summary_power_a40": _Epochs("a40", Pipe.TF32, 0.0, 0.003085),
}
_BATCH_SIZE = 256
_IMAGES = 1_281_167


def _sweeps(file: Path) -> list[StageSweep]:
    return [sweep for sweep in read_stage_profile(file) if sweep.instruction in _STAGE]


def judge_training(files: Iterable[Path]) -> list[Judgement]:
    """Judge time and power of the simulated GPUs on every table of training that is known."""
    found: list[Judgement] = []
    for file in files:
        if file.stem == _STAGES:
            found += [judgement for gpu in _STAGE_GPUS for judgement in _judge_stages(gpu, _sweeps(file))]
        elif file.stem in _EPOCHS:
            found += _judge_epochs(_EPOCHS[file.stem], file)
    return found


def _judge_stages(gpu: str, sweeps: list[StageSweep]) -> list[Judgement]:
    errors: list[tuple[Floats, Floats]] = []
    for sweep in sweeps:
        table = tabulate(load_model(gpu), _STAGE[sweep.instruction])[0]
        free = sweep.sm_mhz <= _HELD_FROM_MHZ
        clocks = sweep.sm_mhz[free]
        time_s = np.interp(clocks, table.sm_mhz, table.iteration_s)
        power_w = np.interp(clocks, table.sm_mhz, table.mean_power_w)
        measured_w = sweep.energy_j / sweep.time_s
        errors.append((relative(time_s, sweep.time_s[free]), relative(power_w, measured_w[free])))
    return _by_catalogue(
        f"{gpu} (simulated) GPT-3 stages",
        _STAGE_GPUS[gpu],
        f"clocks up to {_HELD_FROM_MHZ} MHz",
        stage_profiles.SOURCE,
        ("time", "power"),
        errors,
    )


def _judge_epochs(epochs: _Epochs, file: Path) -> list[Judgement]:
    network = make_workload(f"resnet50:{_BATCH_SIZE}", pipe=epochs.pipe)
    stalls = (Phase(name="host", host_stall_s=_BATCH_SIZE * epochs.stall_s),) if epochs.stall_s else ()
    training = replace(network, phases=(*network.phases, *stalls), loading_s=_BATCH_SIZE * epochs.loading_s)
    table = tabulate(load_model(epochs.gpu), training)[0]
    errors = []
    for curve in zeus_tables.read_power_table(file):
        if curve.batch_size == _BATCH_SIZE and "imagenet resnet50" in curve.workload:
            places = [_limited(table, float(limit_w)) for limit_w in curve.limit_w]
            time_s = table.iteration_s[places] / _BATCH_SIZE * _IMAGES
            errors.append((relative(time_s, curve.time_s), relative(table.mean_power_w[places], curve.power_w)))
    return _by_catalogue(
        f"{epochs.gpu} (simulated) ResNet-50",
        "the catalogue, which was set with these epochs",
        f"all limits, batch size {_BATCH_SIZE}",
        zeus_tables.SOURCE,
        ("time per epoch", "mean power"),
        errors,
    )


@dataclass(frozen=True, slots=True)
class _Curve:
    """Our fit of a program's power, constant_w + w_per_mhz·f·v(f)², and of its time, on a V100 SXM2."""

    constant_w: float
    w_per_mhz: float
    knee_mhz: float
    ratio: float
    clock_share: float
    """Share of the time at the highest clock that follows the clock."""

    def power_w(self, sm_mhz: Floats, highest_mhz: float) -> Floats:
        v = voltage(sm_mhz / highest_mhz, knee=self.knee_mhz / highest_mhz, rise=self.ratio - 1.0)
        return np.asarray(self.constant_w + self.w_per_mhz * sm_mhz * v**2)


_CURVES = {"GeMM": _Curve(21.6, 0.0902, 1113, 1.256, 0.86), "3MM": _Curve(32.8, 0.0781, 1028, 1.19, 0.67)}


def judge_volta() -> list[Judgement]:
    """Judge power, and energy relative to the highest clock, of two programs whose power was not fitted."""
    model = load_model("v100-sxm2")
    errors: list[tuple[Floats, Floats]] = []
    for program in unseen_programs(model):
        if (curve := _CURVES.get(program.name)) is None:
            continue
        table = tabulate(model, program)[0]
        clocks = np.array(table.sm_mhz, dtype=np.float64)
        used = clocks >= MEASURED_FROM * clocks[-1]
        power_w = curve.power_w(clocks[used], clocks[-1])
        energy = power_w * (1.0 + curve.clock_share * (clocks[-1] / clocks[used] - 1.0)) / power_w[-1]
        ours = table.iteration_j[used] / table.iteration_j[-1]
        errors.append((relative(table.mean_power_w[used], power_w), relative(ours, energy)))
    return _by_catalogue(
        f"v100-sxm2 (simulated) {', '.join(_CURVES)}",
        "the catalogue: power of 16 other programs; their own power at the highest clock",
        f"clocks from {MEASURED_FROM:g} of the highest on",
        "curves fitted to runs of zyjopensource/GPU-DVFS-Dataset",
        ("power", "energy over that at the highest clock"),
        errors,
    )


def _limited(table: LoadTable, limit_w: float) -> int:
    """Return the place of the clock that a limit allows; the lowest where even that draws more."""
    return int(max(np.flatnonzero(table.limited_power_w <= limit_w), default=0))


def _by_catalogue(
    dataset: str,
    fitted_on: str,
    judged_on: str,
    source: str,
    quantities: tuple[str, str],
    errors: list[tuple[Floats, Floats]],
) -> list[Judgement]:
    return [
        Judgement(
            dataset=dataset,
            quantity=quantity,
            fitted_on=fitted_on,
            judged_on=judged_on,
            errors=np.concatenate(parts),
            source=source,
        )
        for quantity, parts in zip(quantities, zip(*errors, strict=True), strict=False)
    ]


def training_savings(files: Iterable[Path]) -> list[Row]:
    """Make a row for what the stages save within each slowdown, measured and simulated; none has a goal."""
    sweeps = [sweep for file in files if file.stem == _STAGES for sweep in _sweeps(file)]
    return [_saving_row(gpu, sweeps, slowdown) for gpu in _STAGE_GPUS for slowdown in _SLOWDOWNS if sweeps]


def _saving_row(gpu: str, sweeps: list[StageSweep], slowdown: float) -> Row:
    measured = [_saving_percent(sweep.time_s, sweep.energy_j, slowdown) for sweep in sweeps]
    ours = fmean(_simulated_saving(gpu, sweep, slowdown) for sweep in sweeps)
    low, high = min(measured), max(measured)
    nearest = min(max(ours, low), high)
    return {
        "dataset": f"{gpu} (simulated)",
        "quantity": f"saving within {slowdown:.0%} more time, %",
        "fitted_on": _STAGE_GPUS[gpu],
        "judged_on": "GPT-3 stages",
        "mape_percent": 100.0 * abs(ours - nearest) / nearest,
        "published_low": round(low, 1),
        "published_high": round(high, 1),
        "ours": ours,
        "inside": low <= ours <= high,
        "stands_in": True,
        "source": f"real training: {stage_profiles.SOURCE}",
    }


def _simulated_saving(gpu: str, sweep: StageSweep, slowdown: float) -> float:
    """Compare with the highest clock at which the simulated stage draws no more than the real one ever did."""
    table = tabulate(load_model(gpu), _STAGE[sweep.instruction])[0]
    most_w = float((sweep.energy_j / sweep.time_s).max())
    # Rounding may lift the power of a clock above itself.
    count = int(np.count_nonzero(table.mean_power_w <= most_w * (1.0 + 1e-9)))
    return _saving_percent(table.iteration_s[:count], table.iteration_j[:count], slowdown)


def _saving_percent(time_s: Floats, energy_j: Floats, slowdown: float) -> float:
    """Return the largest saving against the last clock that takes at most so much longer."""
    near = time_s <= (1.0 + slowdown) * time_s[-1]
    return float(100.0 * (1.0 - energy_j[near].min() / energy_j[-1]))
