"""Traces of the seventy-one simulated training jobs on GPUs of the catalogue, with waits drawn again for each step."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from random import Random

import numpy as np

from wattune.core.setting import DRIVER_DEFAULT
from wattune.core.workload import Phase
from wattune.physics.catalog import catalog_names, load_model
from wattune.physics.gpu_model import GpuModel
from wattune.physics.operating_point import loaded_point
from wattune.physics.spend import tabulate
from wattune.signals.comb import comb
from wattune.signals.grid import even_grid
from wattune.signals.period import Verdict
from wattune.signals.samples import Floats, PowerSamples, find_updates
from wattune.workloads.training_run import Loop, Wait
from wattune_bench.family import FamilyMember, family
from wattune_bench.period.cases import TraceCase
from wattune_bench.period.loads import Load, Sensing, polled

_SECONDS = 60.0
_POLLS_S = (0.01, 0.02, 0.05)
_MICRO = ("micro-step", "critic step")
# Least cycles in the trace for a level that has to be found, and for one that may be.
_LEAST_CYCLES, _FEWEST_CYCLES = 4.0, 3.0
# A level is visible where its lines are this significant to a test that knows the period.
_CLEAR = 1e-6


def family_cases(*, seed: int) -> Iterator[TraceCase]:
    """Make one trace of each job, on the GPUs of the catalogue in turn."""
    names = catalog_names()
    for number, member in enumerate(family(seed=seed)):
        gpu = names[(number + 5 * seed) % len(names)]
        yield _case(member, gpu, np.random.default_rng((seed, number)), seed)


def _case(member: FamilyMember, gpu: str, random: np.random.Generator, seed: int) -> TraceCase:
    model = load_model(gpu)
    sensing = Sensing.of(model, poll_s=float(random.choice(_POLLS_S)))
    load = _load(member, model)
    samples = polled(load, sensing, _SECONDS, random=random)
    followed = {
        name: period_s
        for name, period_s in load.periods_s.items()
        if sensing.finest_s <= period_s <= _SECONDS / _FEWEST_CYCLES
    }
    due = [period_s for period_s in followed.values() if period_s <= _SECONDS / _LEAST_CYCLES]
    seen = any(_is_clear(samples, period_s) for period_s in due)
    return TraceCase(
        file=f"simulated/family/{member.name}/{gpu}/{seed}",
        kind="family",
        samples=samples,
        verdict=Verdict.PERIODIC if seen else Verdict.NOT_OBSERVABLE,
        periods_s=followed,
        gpu=gpu,
        seed=seed,
    )


def _is_clear(samples: PowerSamples, period_s: float) -> bool:
    lines = comb(even_grid(find_updates(samples.time_s, samples.power_w)), period_s)
    return lines is not None and lines.chance < _CLEAR


@dataclass(slots=True)
class _FamilyPlayback:
    """A job under way: rows of a table in their order, each wait drawn again."""

    rows: Floats
    """(4, rows): duration, power, busy and memory busy of one pass of everything."""
    random: Random
    next_row: int = 0
    pieces: list[tuple[float, int]] = field(default_factory=list)
    """Duration and row of each piece that was played."""
    passes: dict[str, list[float]] = field(default_factory=dict)

    def play(self, loop: Loop) -> float:
        """Play all passes of a loop and return how long they took."""
        total_s = 0.0
        for _ in range(loop.times):
            pass_s = sum(self.play(part) if isinstance(part, Loop) else self._one(part) for part in loop.body)
            self.passes.setdefault(loop.name, []).append(pass_s)
            total_s += pass_s
        return total_s

    def _one(self, part: Phase | Wait) -> float:
        total_s = 0.0
        for _ in range(1 if isinstance(part, Wait) else table_rows(part)):
            drawn = part.drawn(self.random).host_stall_s if isinstance(part, Wait) else None
            length_s = float(self.rows[0, self.next_row]) if drawn is None else drawn
            self.pieces.append((length_s, self.next_row))
            self.next_row += 1
            total_s += length_s
        return total_s


def table_rows(phase: Phase) -> int:
    """Count the rows that a phase has in a load table: one for its work, one for its wait."""
    return int(bool(phase.flops or phase.dram_bytes or phase.launches)) + int(bool(phase.host_stall_s))


def _load(member: FamilyMember, model: GpuModel) -> Load:
    """Play the job for as long as the trace, with the mean length of each level."""
    tables = tabulate(model, member.run)
    point = loaded_point(model, DRIVER_DEFAULT, tuple(table.limited_power_w for table in tables))
    table = tables[point.row]
    column = (values[:, point.column] for values in (table.duration_s, table.power_w))
    playing = _FamilyPlayback(np.array([*column, table.sm_util, table.mem_util[:, point.column]]), Random(member.seed))
    played_s = 0.0
    while played_s < _SECONDS + 1:
        playing.next_row = 0
        played_s += playing.play(member.loop)
    lengths_s = np.array([length_s for length_s, _ in playing.pieces])
    _, power_w, busy, mem_busy = playing.rows[:, [row for _, row in playing.pieces]]
    return Load(
        duration_s=lengths_s, power_w=power_w, busy=busy, mem_busy=mem_busy, periods_s=_periods_s(member, playing)
    )


def _periods_s(member: FamilyMember, playing: _FamilyPlayback) -> dict[str, float]:
    """Return the mean length of each level; rounds of steps that nothing separates are none."""
    names = [name for name in (*_MICRO, "step") if len(playing.passes.get(name, ())) > 1]
    if "evaluated batch" in playing.passes:
        names.append("evaluation")
    if "evaluated batch" in playing.passes or any(isinstance(part, Wait) for part in member.loop.body):
        names.append(member.loop.name)
    periods_s = {name: float(np.mean(playing.passes[name])) for name in names}
    for micro in set(names) & set(_MICRO):
        # With its share of what comes once per step.
        many = len(playing.passes[micro]) / len(playing.passes["step"])
        periods_s |= {"pass": periods_s[micro], micro: periods_s["step"] / many}
    return periods_s
