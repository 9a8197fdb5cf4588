"""Training data for models that predict clocks from counters: simulated workloads at every clock of a GPU.

The workloads are not those on which run-level policies are judged. Two thirds are mixtures of phases drawn at random:
arithmetic and traffic in any proportion, launches, waits for the host. The rest are networks of the catalogue at
several batch sizes, with waits drawn as well; graph networks are left out, because most of the judged jobs are such.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import cache
from random import Random

import numpy as np

from wattune.core.workload import Phase, Pipe, Workload
from wattune.levels.run.gpoeo.models import FEATURES, GpoeoModels, PredictionTable, reference_setting, train
from wattune.levels.run.simulated_program import ProgramPhase, SimulatedProgram, counters, program_of
from wattune.physics.catalog import load_model
from wattune.physics.gpu_model import GpuModel
from wattune.physics.gpu_parts import Floats
from wattune.workloads.catalog import make_workload, network_named, workload_names
from wattune.workloads.family import FamilyMember
from wattune.workloads.graph import graph_kinds
from wattune.workloads.training_run import Loop

MIXTURES = 160
_BATCHES = (0.25, 0.5, 1.0, 2.0)
_SEED = 1
"""Of the waits and the mixtures; the judged jobs are drawn by other means, from seeds of their own."""


@cache
def trained_models(gpu: str) -> GpoeoModels:
    """The models of a GPU of the catalogue; made when first asked for, which takes some seconds."""
    model = load_model(gpu)
    return train(prediction_table(model, programs_of(model, training_workloads())))


def training_workloads(*, mixtures: int = MIXTURES, seed: int = _SEED) -> tuple[Workload, ...]:
    """Networks and mixtures, one after the other in turn, so that any stretch of them has both."""
    networks = [
        _waiting(make_workload(name, batch_size=size), Random(f"{seed}/{name}/{size}")) for name, size in _networks()
    ]
    mixed = [_mixture(f"mixture {number}", Random(f"{seed}/{number}")) for number in range(mixtures)]
    places = [(place / len(group), workload) for group in (networks, mixed) for place, workload in enumerate(group)]
    return tuple(workload for _, workload in sorted(places, key=lambda found: found[0]))


def programs_of(model: GpuModel, workloads: Iterable[Workload]) -> list[SimulatedProgram]:
    """Workloads as programs on a GPU that do nothing but steps."""
    return [program_of(model, _member(workload)) for workload in workloads]


def prediction_table(model: GpuModel, programs: Sequence[SimulatedProgram]) -> PredictionTable:
    """What steps take and spend at every clock over what they do at the reference, and their counters there."""
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
    """Time and energy of a step at every core clock that is asked for, warm, and the column that then holds."""
    model, part = program.model, program.parts[0]
    sm_mhz = np.array(model.clocks[row].sm_mhz, dtype=np.float64)
    warm_c = model.settled_c(sm_mhz, part.power_w[row])
    held = _held(model, part, row, model.leak_w(sm_mhz, warm_c))
    power_w = part.power_w[row] + model.leak_w(sm_mhz, warm_c)
    return part.time_s[row][held], (part.time_s[row] * power_w)[held], held


def _held(model: GpuModel, part: ProgramPhase, row: int, leak_w: Floats) -> Floats:
    """For every clock that is asked for, the place of the highest that the power limit leaves."""
    allowed = part.limited_w[row] + leak_w <= min(model.default_limit_w, model.thermal.most_w)
    return np.maximum.accumulate(np.where(allowed, np.arange(len(allowed)), 0))


def _member(workload: Workload) -> FamilyMember:
    """The workload as a program that does nothing but steps."""
    loop = Loop(workload.name, (Loop("step", workload.phases),))
    return FamilyMember(name=workload.name, batch_size=1, pipe=Pipe.FP32, loop=loop, seed=0)


def _networks() -> list[tuple[str, int]]:
    """Names and batch sizes: a quarter to twice the usual one, where it can be divided."""
    names = [name for name in workload_names() if name not in graph_kinds()]
    sizes = {name: {max(round(network_named(name).batch_size * share), 1) for share in _BATCHES} for name in names}
    return [(name, size) for name in names for size in sorted(sizes[name])]


def _waiting(workload: Workload, random: Random) -> Workload:
    """The network as some program runs it: host time per kernel, and a wait for data in every other one."""
    dispatch_s = random.choice((0.0, 5e-6, 10e-6, 20e-6)) * random.lognormvariate(0.0, 0.3)
    phases = [replace(phase, host_stall_s=phase.launches * dispatch_s) for phase in workload.phases]
    if random.random() < 0.5:
        phases.append(Phase(name="loading", host_stall_s=random.lognormvariate(-4.0, 1.0)))
    return replace(workload, phases=tuple(phases))


def _mixture(name: str, random: Random) -> Workload:
    """A few phases of any intensity on units of any kind; some programs hardly wait for their host, some mostly do."""
    pipes = random.choice(((Pipe.FP32,), (Pipe.TF32, Pipe.FP32), (Pipe.FP16, Pipe.FP32)))
    dispatch_s = random.choice((0.0, 5e-6, 10e-6, 20e-6))
    phases = []
    for place in range(random.randint(2, 8)):
        launches = random.randint(1, 60)
        # Around the ridge of most parts, some 40 operations per byte, and two orders of magnitude to either side.
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
