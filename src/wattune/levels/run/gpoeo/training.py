"""Training data for models that predict clocks from counters: simulated workloads at every clock of a GPU.

The workloads are not those of `bench run`. Two thirds are random mixtures of phases:
arithmetic and traffic in any proportion, launches, waits for the host. The rest are networks of the catalogue at
several batch sizes with random waits, without graph networks, because most of the benchmark jobs are such.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import cache
from random import Random

import numpy as np

from wattune.core.errors import DeviceNotFound
from wattune.core.gpu_spec import GpuSpec
from wattune.core.workload import Phase, Pipe, Workload
from wattune.levels.run.gpoeo.models import FEATURES, GpoeoModels, PredictionTable, reference_setting, train
from wattune.levels.run.simulated_program import SimulatedProgram, counters
from wattune.physics.catalog import load_model
from wattune.physics.gpu_model import GpuModel
from wattune.physics.gpu_parts import Floats
from wattune.response.boosted_trees import MISSING, installed
from wattune.workloads.catalog import make_workload, network_named, workload_names
from wattune.workloads.graph import graph_kinds

MIXTURES = 160
_BATCHES = (0.25, 0.5, 1.0, 2.0)
_SEED = 1
"""Of the waits and the mixtures; the benchmark jobs have other seeds."""


def missing_for(spec: GpuSpec) -> str | None:
    """Return why no models can be trained for a GPU, in words; None where they can."""
    if not installed():
        return MISSING
    return None if catalog_name(spec) else f"there is no {spec.name} in the catalogue"


def learned(spec: GpuSpec) -> GpoeoModels | None:
    """Return the models of a GPU, which are trained at the first call; None where they cannot be."""
    gpu = catalog_name(spec)
    return None if gpu is None or missing_for(spec) else trained_models(gpu)


def catalog_name(spec: GpuSpec) -> str | None:
    """Return the name of a GPU in the catalogue; None where it is not there."""
    try:
        return load_model(spec.model_name).name
    except DeviceNotFound:
        return None


@cache
def trained_models(gpu: str) -> GpoeoModels:
    """Train the models of a GPU of the catalogue, once; this takes some seconds."""
    model = load_model(gpu)
    return train(prediction_table(model, programs_of(model, training_workloads())))


def training_workloads(*, mixtures: int = MIXTURES, seed: int = _SEED) -> tuple[Workload, ...]:
    """Return networks and mixtures, interleaved so that any interval has both."""
    networks = [
        _waiting(make_workload(name, batch_size=size), Random(f"{seed}/{name}/{size}")) for name, size in _networks()
    ]
    mixed = [_mixture(f"mixture {number}", Random(f"{seed}/{number}")) for number in range(mixtures)]
    places = [(place / len(group), workload) for group in (networks, mixed) for place, workload in enumerate(group)]
    return tuple(workload for _, workload in sorted(places, key=lambda found: found[0]))


def programs_of(model: GpuModel, workloads: Iterable[Workload]) -> list[SimulatedProgram]:
    """Return programs that only repeat the workload, one for each workload."""
    return [SimulatedProgram.of(model, workload, name=workload.name) for workload in workloads]


def prediction_table(model: GpuModel, programs: Sequence[SimulatedProgram]) -> PredictionTable:
    """Tabulate time and energy of steps at every clock relative to the reference, with the counters there."""
    reference = reference_setting(model.spec())
    sm_mhz = reference.sm_mhz or 0
    row = 0 if reference.mem_mhz is None else model.mem_clocks_mhz.index(reference.mem_mhz)
    column = model.clocks[row].sm_mhz.index(sm_mhz)
    memories = [place for place, table in enumerate(model.clocks) if reference.mem_mhz and sm_mhz in table.sm_mhz]
    memories.sort(key=lambda place: model.mem_clocks_mhz[place])
    columns = [model.clocks[place].sm_mhz.index(sm_mhz) for place in memories]
    features, core, memory = [], [], []
    for program in programs:
        time_s, energy_j, held = settled(program, row)
        found = counters(program, row, int(held[column]))
        features.append([found[name] for name in FEATURES])
        there = np.array([time_s[column], energy_j[column]])
        core.append(np.array([time_s, energy_j]) / there[:, np.newaxis])
        beside = [settled(program, place) for place in memories]
        memory.append(
            [[one[kind][at] / there[kind] for one, at in zip(beside, columns, strict=True)] for kind in (0, 1)]
        )
    beside_all = np.array(memory).reshape(len(programs), 2, len(memories))
    return PredictionTable(
        reference=reference,
        names=tuple(program.name for program in programs),
        features=np.array(features),
        sm_mhz=model.clocks[row].sm_mhz,
        time=np.array(core)[:, 0],
        energy=np.array(core)[:, 1],
        mem_mhz=tuple(model.mem_clocks_mhz[place] for place in memories),
        mem_time=beside_all[:, 0],
        mem_energy=beside_all[:, 1],
    )


def settled(program: SimulatedProgram, row: int) -> tuple[Floats, Floats, Floats]:
    """Return time and energy of a step at every requested core clock on a warm GPU, and the column that is reached."""
    model = program.model
    sm_mhz = np.array(model.clocks[row].sm_mhz, dtype=np.float64)
    leak_w = model.leak_w(sm_mhz, model.settled_c(sm_mhz, program.power_w[row]))
    allowed = program.limited_w[row] + leak_w <= min(model.default_limit_w, model.thermal.most_w)
    # For every requested clock, the highest one within the power limit.
    held = np.maximum.accumulate(np.where(allowed, np.arange(len(allowed)), 0))
    energy_j = program.time_s[row] * (program.power_w[row] + leak_w)
    return program.time_s[row][held], energy_j[held], held


def _networks() -> list[tuple[str, int]]:
    """Return names and batch sizes, from a quarter to twice the usual one."""
    names = [name for name in workload_names() if name not in graph_kinds()]
    sizes = {name: {max(round(network_named(name).batch_size * share), 1) for share in _BATCHES} for name in names}
    return [(name, size) for name in names for size in sorted(sizes[name])]


def _waiting(workload: Workload, random: Random) -> Workload:
    """Add host time to every kernel, and in half of the programs a wait for data."""
    dispatch_s = random.choice((0.0, 5e-6, 10e-6, 20e-6)) * random.lognormvariate(0.0, 0.3)
    phases = [replace(phase, host_stall_s=phase.launches * dispatch_s) for phase in workload.phases]
    if random.random() < 0.5:
        phases.append(Phase(name="loading", host_stall_s=random.lognormvariate(-4.0, 1.0)))
    return replace(workload, phases=tuple(phases))


def _mixture(name: str, random: Random) -> Workload:
    """Draw a few phases of any intensity and pipe; some programs hardly wait for the host, some mostly do."""
    pipes = random.choice(((Pipe.FP32,), (Pipe.TF32, Pipe.FP32), (Pipe.FP16, Pipe.FP32)))
    dispatch_s = random.choice((0.0, 5e-6, 10e-6, 20e-6))
    phases = []
    for place in range(random.randint(2, 8)):
        launches = random.randint(1, 60)
        # Around the ridge of most GPUs, some 40 operations per byte, and two orders of magnitude to either side.
        dram_bytes = random.lognormvariate(18.0, 1.2)
        phases.append(
            Phase(
                name=f"mixed/{place}",
                flops=dram_bytes * random.lognormvariate(3.0, 1.7),
                pipe=random.choice(pipes),
                dram_bytes=dram_bytes,
                launches=launches,
                host_stall_s=launches * dispatch_s,
            )
        )
    if random.random() < 0.6:
        phases.append(Phase(name="loading", host_stall_s=random.lognormvariate(-5.0, 1.3)))
    return Workload(name=name, phases=tuple(phases))
