"""Programs of the family on a simulated GPU in virtual time, played under the shipped session.

One pass of a program's outermost loop is repeated: steps, evaluated batches, checkpoints, with the waits for the host
drawn once from the seed. The GPU's sensors show what those of the real one would: values that are refreshed at
intervals, averaged and noisy. The session gets no other information, unless the program reports its steps. What a run
took and spent is read from the simulated GPU itself and not from its sensors.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from time import process_time

from wattune.control.counters import CounterWatch
from wattune.core.measurement import Measurement
from wattune.core.objective import LeastEnergy
from wattune.core.setting import DRIVER_DEFAULT, Setting
from wattune.core.window import RunPolicy
from wattune.devices.passing_time import VirtualTime
from wattune.devices.simulated import SimulatedGpu
from wattune.levels.run.session import RunSession
from wattune.levels.run.simulated_program import SimulatedProgram, counters
from wattune.physics.gpu_model import GpuModel
from wattune.physics.gpu_parts import Floats
from wattune.physics.load_table import LoadTable
from wattune.physics.operating_point import loaded_point
from wattune.physics.spend import tabulate
from wattune.workloads.training_run import Loop, Wait
from wattune_bench.family import FamilyMember
from wattune_bench.period.family import table_rows
from wattune_bench.run.outcome import (
    BestSetting,
    PlayedRun,
    RunMark,
    RunRecorder,
)

_END_S = 1e-6


@dataclass(frozen=True, slots=True, eq=False)
class FamilyProgram:
    """A member of the family on a GPU, with the work of a run: so many passes of its outermost loop."""

    model: GpuModel
    member: FamilyMember
    tables: tuple[LoadTable, ...]
    limited_w: tuple[Floats, ...]
    """The power that a power limit acts on, over core clocks, per memory clock."""
    passes: int

    @classmethod
    def of(cls, model: GpuModel, member: FamilyMember, *, seconds: float) -> FamilyProgram:
        """The program with as many whole passes as the driver's own clocks do in about that time."""
        tables = tabulate(model, member.run)
        once = cls(model, member, tables, tuple(table.limited_power_w for table in tables), 1)
        return replace(once, passes=max(round(seconds / once.cost(DRIVER_DEFAULT).time_s), 1))

    def cost(self, setting: Setting) -> Measurement:
        """Time and energy of the whole work at one setting."""
        point = loaded_point(self.model, setting, self.limited_w)
        table = self.tables[point.row]
        return Measurement(
            self.passes * float(table.iteration_s[point.column]), self.passes * float(table.iteration_j[point.column])
        )

    def oracle(self, slowdown: float) -> BestSetting:
        """Find the setting that spends least on the whole work within the slowdown limit."""
        default = self.cost(DRIVER_DEFAULT)
        rows = self.model.clocks if self.model.can_lock_mem else self.model.clocks[:1]
        settings = [
            Setting(sm_mhz, table.mem_mhz if row else None) for row, table in enumerate(rows) for sm_mhz in table.sm_mhz
        ]
        costs = {DRIVER_DEFAULT: default, **{setting: self.cost(setting) for setting in settings}}
        within = [setting for setting, cost in costs.items() if cost.time_s <= default.time_s * (1 + slowdown)]
        best = min(within, key=lambda setting: costs[setting].energy_j)
        return BestSetting(best, default, costs[best])


def play_program(
    program: FamilyProgram, policy: RunPolicy, *, slowdown: float, seed: int, reports_steps: bool = False
) -> PlayedRun:
    """Run the program to its end under the session, with everything that the session does charged to it.

    A policy that needs hardware counters gets those of the step, which the authors of GPOEO read with CUPTI.
    """
    time = VirtualTime()
    gpu = SimulatedGpu(program.model, time=time, seed=seed, switching=program.model.spec().switching)
    gpu.play(program.member.run)
    session = RunSession((gpu,), objective=LeastEnergy(slowdown), policy=policy)
    recorder, steps = RunRecorder(session), StepClock(program.member.loop)
    control_s = 0.0
    with session:
        if policy.needs_counters:
            reader = SimulatedCounters(
                gpu, SimulatedProgram.of(program.model, program.member.step, name=program.member.name)
            )
            session.watch.counters = CounterWatch((reader,), top_mhz=gpu.spec.sm_clocks_mhz[-1])
        while (left_s := _left_s(gpu, program.passes)) > _END_S:
            time.wait(min(session.loop.wait_s, left_s))
            if reports_steps:
                for end_s in steps.ends_s(gpu):
                    session.watch.marks.add(end_s)
            begun_s = process_time()
            session.loop.tick()
            control_s += process_time() - begun_s
            recorder.mark(lambda: _mark(gpu))
        end = _mark(gpu)
    return recorder.outcome(policy.name, end, control_s)


def _left_s(gpu: SimulatedGpu, passes: float) -> float:
    timeline, now_s = gpu.present()
    return timeline.time_of(passes) - now_s


def _mark(gpu: SimulatedGpu) -> RunMark:
    timeline, now_s = gpu.present()
    return RunMark(Measurement(now_s, gpu.truth_j), timeline.iterations(now_s))


class StepClock:
    """The ends of the steps of a playing program, as the program itself would report them."""

    def __init__(self, loop: Loop) -> None:
        self._rows = tuple(_step_rows(loop))
        self._done = 0
        self._before_s = 0.0

    def ends_s(self, gpu: SimulatedGpu) -> list[float]:
        """List the ends of steps since the last call."""
        timeline, now_s = gpu.present()
        segment = timeline.now
        passed_s = max(segment.offset_s + now_s - segment.start_s, 0.0)
        position = segment.cycle.position(passed_s)
        every = len(self._rows)
        done = int(segment.whole + position.whole) * every + bisect_right(self._rows, position.phase)
        found = []
        for step in range(self._done, done):
            whole, place = divmod(step, every)
            at_s = (whole - segment.whole) * segment.cycle.iteration_s + segment.cycle.ends_s[self._rows[place]]
            # A step that ended before the present clock took over was timed by another clock.
            found.append(min(max(segment.start_s + at_s - segment.offset_s, self._before_s), now_s))
        self._done, self._before_s = max(done, self._done), now_s
        return found


def _step_rows(loop: Loop) -> Iterator[int]:
    """Rows of the program's table that are over when a step ends."""
    rows = 0

    def walk(part: Loop) -> Iterator[int]:
        nonlocal rows
        for _ in range(part.times):
            for inner in part.body:
                if isinstance(inner, Loop):
                    yield from walk(inner)
                else:
                    rows += 1 if isinstance(inner, Wait) else table_rows(inner)
            if part.name == "step":
                yield rows

    yield from walk(loop)


class SimulatedCounters:
    """Hardware counters of the program's step at the clocks that hold."""

    def __init__(self, gpu: SimulatedGpu, program: SimulatedProgram) -> None:
        self._gpu, self._program = gpu, program

    def read(self) -> Mapping[str, float]:
        point = self._gpu.present()[0].now.point
        return counters(self._program, point.row, point.column)
