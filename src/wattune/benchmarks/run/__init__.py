"""`wattune bench run --simulated` and `--live`: the shipped session with each policy, and the cost of the loop.

Simulated: a GPU in virtual time plays one pass of a program's outermost loop again and again: steps, evaluated batches,
checkpoints, with the waits for the host drawn once from the seed. Its sensors show what those of the real GPU would:
values that are refreshed at intervals, averaged and noisy. The session gets no other information, unless the program
reports its steps. What a run took and spent is read from the simulated GPU itself and not from its sensors.

Live: the loop runs in a thread; its CPU time is that of the thread and includes reading the GPUs through NVML, finding
periods, deciding and setting clocks. The first minute costs most, since that is when it searches.
"""

from __future__ import annotations

import tempfile
import time
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean, median
from time import perf_counter, process_time
from types import ModuleType
from typing import Any

from wattune.benchmarks.family import SIZE, FamilyMember, family
from wattune.benchmarks.parallel import in_processes
from wattune.benchmarks.period.family import table_rows
from wattune.benchmarks.result import Bench, Goal, Row, at_most
from wattune.benchmarks.run.contention import contended_goals, contended_rows
from wattune.benchmarks.run.outcome import (
    BestSetting,
    PlayedRun,
    RunMark,
    RunRecorder,
    fixed_run,
    policy_means,
    run_goals,
    run_row,
)
from wattune.benchmarks.run.policies import DEFAULT, ORACLE, OURS, chosen_policies, make_policy
from wattune.control.injected import sitecustomize
from wattune.control.step_file import StepFile
from wattune.control.step_time import CounterWatch
from wattune.core.errors import InputError
from wattune.core.measurement import Measurement
from wattune.core.objective import LeastEnergy
from wattune.core.setting import DRIVER_DEFAULT, Setting
from wattune.core.window import RunPolicy
from wattune.devices.open import Surroundings, open_gpus
from wattune.devices.passing_time import VirtualTime
from wattune.devices.simulated import SimulatedGpu
from wattune.emulator.emulated_gpu import EmulatedGpu
from wattune.emulator.library import build_library
from wattune.emulator.node import Node, emulated
from wattune.levels.run.session import RunSession
from wattune.levels.run.simulated_program import SimulatedProgram, counters
from wattune.physics.catalog import load_model
from wattune.physics.gpu_model import GpuModel
from wattune.physics.gpu_parts import Floats
from wattune.physics.load_table import LoadTable
from wattune.physics.operating_point import loaded_point
from wattune.physics.spend import tabulate
from wattune.workloads.catalog import make_workload
from wattune.workloads.training_run import Loop, Wait

PUBLISHED_SAVING_PERCENT, PUBLISHED_SLOWDOWN_PERCENT = 16.2, 5.1
"""Of GPOEO on 71 workloads on a real RTX 3080 Ti (Wang et al. 2022, abstract); energy above a floor of 30 W."""

HOUR_S = 3600.0
_LONGEST_S = 600.0
_COUNTERS = (
    "gpoeo gets counters of the simulated step, which its authors read with CUPTI; no other policy gets any, because "
    "this GPU shows none from outside"
)

OnStep = Callable[[str, int, int], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunBench:
    """The options of the bench."""

    gpu: str = "rtx-3080-ti"
    seeds: int = 1
    slowdown: float = 0.05
    hours: float = 0.15
    workloads: tuple[str, ...] = ()
    policies: tuple[str, ...] = ()
    reports_steps: bool = False
    processes: int = 2


@dataclass(frozen=True, slots=True)
class RunCase:
    """A policy on a member of the family with a seed."""

    asked: RunBench
    workload: str
    policy: str
    seed: int


@dataclass(frozen=True, slots=True)
class CaseResult:
    """The row of a case and the CPU time that it took."""

    row: Row
    cpu_s: float


def bench_run(asked: RunBench, *, on_step: OnStep | None = None) -> Bench:
    """Play every policy on the simulated family and judge the whole runs."""
    begun_s = perf_counter()
    policies, missing = chosen_policies(asked.policies)
    cases = [
        RunCase(asked, workload, policy, seed)
        for seed in range(asked.seeds)
        for workload in _workloads(asked.workloads)
        for policy in policies
    ]
    load_model(asked.gpu)

    def report(done: int) -> None:
        if on_step is not None:
            on_step("playing", done, len(cases))

    report(0)
    results = in_processes(run_case, cases, processes=asked.processes, on_case=report)
    elapsed_s = perf_counter() - begun_s
    rows = [result.row for result in results]
    cpu_s = sum(result.cpu_s for result in results)
    return Bench(
        bench="run",
        simulated=True,
        rows=tuple(rows),
        goals=tuple(_goals(asked, rows, elapsed_s)),
        notes=(*missing, *_notes(asked, rows, elapsed_s, cpu_s)),
        figures=_figures(asked, rows, elapsed_s, cpu_s),
    )


def run_case(case: RunCase) -> CaseResult:
    """Play one run; what a policy learned beforehand is not counted as CPU time of the case."""
    asked = case.asked
    model = load_model(asked.gpu)
    member = next(member for member in family(seed=case.seed) if member.name == case.workload)
    program = FamilyProgram.of(model, member, seconds=asked.hours * HOUR_S)
    best = program.oracle(asked.slowdown)
    played: PlayedRun
    begun_s = process_time()
    if case.policy == ORACLE:
        played = fixed_run(ORACLE, best.setting, best.cost, program.passes)
    elif case.policy == DEFAULT:
        played = fixed_run(DEFAULT, DRIVER_DEFAULT, best.default, program.passes)
    else:
        policy = make_policy(case.policy, model.key, slowdown=asked.slowdown)
        begun_s = process_time()
        played = play_program(
            program,
            policy,
            slowdown=asked.slowdown,
            seed=case.seed,
            reports_steps=asked.reports_steps,
        )
    row = run_row(case.workload, case.seed, played, best, slowdown=asked.slowdown)
    return CaseResult(row, process_time() - begun_s)


def _workloads(words: tuple[str, ...]) -> list[str]:
    names = [member.name for member in family()]
    for word in words:
        if not any(word in name for name in names):
            raise InputError(
                f"the family has no workload {word!r}", hint=f"it has {', '.join(names[:3])} and {SIZE - 3} more"
            )
    return [name for name in names if not words or any(word in name for word in words)]


def _goals(asked: RunBench, rows: Sequence[Row], elapsed_s: float) -> list[Goal]:
    control = [row["control_percent"] for row in rows if row["policy"] == OURS]
    whole = not asked.workloads and not asked.policies
    length = f"{asked.seeds} {'seed' if asked.seeds == 1 else 'seeds'} of {60 * asked.hours:g} min"
    return [
        *run_goals(rows, note=_COUNTERS),
        at_most("CPU time of the control loop, of the run's time", fmean(control) if control else None, 1.0, unit=" %"),
        at_most("seconds for all of it", elapsed_s if whole else None, _LONGEST_S, note=length),
    ]


def _figures(asked: RunBench, rows: Sequence[Row], elapsed_s: float, cpu_s: float) -> dict[str, Any]:
    return {
        "gpu": load_model(asked.gpu).name,
        "promise_percent": 100 * asked.slowdown,
        "hours": asked.hours,
        "seeds": asked.seeds,
        "reports_steps": asked.reports_steps,
        "policies": policy_means(rows),
        "published_saving_percent": PUBLISHED_SAVING_PERCENT,
        "published_slowdown_percent": PUBLISHED_SLOWDOWN_PERCENT,
        "cpu_s": cpu_s,
        "elapsed_s": elapsed_s,
    }


def _notes(asked: RunBench, rows: Sequence[Row], elapsed_s: float, cpu_s: float) -> tuple[str, ...]:
    sources = [row["step_time_from"] for row in rows if row["policy"] == OURS]
    share = {name: 100 * fmean(each == name for each in sources) for name in dict.fromkeys(sources)}
    found = ", ".join(f"{name} in {percent:.0f} %" for name, percent in share.items())
    return (
        f"The shipped session on a simulated {load_model(asked.gpu).name} in virtual time, {asked.seeds} seed(s): each "
        f"program does the work of {60 * asked.hours:g} min at the driver's own clocks. Whole runs are judged, search "
        f"included, by the true time and energy. --hours 1 --seeds 5 plays longer runs and more of them.",
        "Programs report their steps."
        if asked.reports_steps
        else "Programs report nothing: step times are measured from the power that the sensors show.",
        *([f"wattune's runs by what measured the step time: {found}."] if found else []),
        f"GPOEO's own figures on a real RTX 3080 Ti: {PUBLISHED_SAVING_PERCENT} % saved (above a floor of 30 W) at "
        f"{PUBLISHED_SLOWDOWN_PERCENT} % slowdown.",
        f"{elapsed_s:.0f} s, {cpu_s:.0f} s of CPU.",
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


GPU_COUNTS = (1, 8)
WORKLOAD = "bert-large"
MOST_PERCENT = 1.0
SHORT_STEP_S, MOST_HOOK_PERCENT = 1e-3, 0.5


def bench_live(
    gpu: str,
    *,
    seconds: float,
    slowdown: float,
    cache_dir: Path,
    contended: int = 0,
    on_step: Callable[[str], None] | None = None,
) -> Bench:
    """Tune one GPU, and eight as one, for so many seconds each; then `contended` programs at once on a busy host."""
    library, rows = build_library(cache_dir), []
    for count in GPU_COUNTS:
        if on_step is not None:
            on_step(f"tunes {count} {'GPU' if count == 1 else 'GPUs'} for {seconds:g} s")
        rows.append(_row(gpu, count, library, seconds=seconds, slowdown=slowdown))
    costliest = max(row["control_core_percent"] for row in rows)
    hook_percent = 100 * hook_s() / SHORT_STEP_S
    busy: tuple[Row, ...] = ()
    if contended:
        busy = contended_rows(gpu, runs=contended, seconds=seconds, slowdown=slowdown, on_step=on_step)
    return Bench(
        bench="run",
        simulated=True,
        rows=(*rows, *busy),
        goals=(
            at_most("control loop, of one core", costliest, MOST_PERCENT, unit=" %"),
            at_most("counting steps inside the program, of a step of 1 ms", hook_percent, MOST_HOOK_PERCENT, unit=" %"),
            *(contended_goals(busy) if busy else ()),
        ),
        notes=("Simulated GPUs behind the emulated NVML library; a real driver's calls take longer.",),
        figures={"gpu": load_model(gpu).name, "seconds": seconds},
    )


def hook_s(calls: int = 20_000) -> float:
    """Measure the CPU time of one counted optimizer step: the median of several rounds."""
    found: list[Callable[[object, object, object], None]] = []
    module = ModuleType("torch.optim.optimizer")
    module.__dict__["register_optimizer_step_post_hook"] = found.append
    with StepFile.made() as file:
        sitecustomize.HOOKS["torch.optim.optimizer"](sitecustomize.Steps(str(file.path)), module)
        hook, optimizer, rounds = found[0], object(), []
        for _ in range(9):
            start_s = time.thread_time()
            for _ in range(calls):
                hook(optimizer, (), {})
            rounds.append((time.thread_time() - start_s) / calls)
    return median(rounds)


def _row(gpu: str, count: int, library: Path, *, seconds: float, slowdown: float) -> Row:
    model = load_model(gpu)
    tables = tabulate(model, make_workload(WORKLOAD))
    with tempfile.TemporaryDirectory() as folder:
        gpus = [EmulatedGpu.of(model, index) for index in range(count)]
        with Node.create(Path(folder) / "node", gpus, library=library, clock="wall") as node, emulated(node):
            for index in range(count):
                node.play(index, tables)
            names = tuple(f"nvml:{index}" for index in range(count))
            with open_gpus(names, Surroundings(Path(folder), None)) as opened:
                session = RunSession(opened, objective=LeastEnergy(slowdown))
                with session:
                    time.sleep(seconds)
                share = session.cpu_share or 0.0
                return {
                    "policy": session.policy.name,
                    "workload": WORKLOAD,
                    "gpus": count,
                    "time_s": session.progress.time_s,
                    "windows": len(session.progress.windows),
                    "changes": session.loop.changes,
                    "control_core_percent": 100 * share,
                }
