"""`wattune bench physics`: fits on measurements that they have not seen, and the catalogue on published outcomes."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

from wattune.benchmarks.datasets import overlap_sweep, stage_profiles, zeus_profiles, zeus_tables
from wattune.benchmarks.datasets.clock_sweep import is_clock_sweep
from wattune.benchmarks.datasets.find import data_files, with_columns
from wattune.benchmarks.physics.curves import judge_clock_sweep, judge_overlap, judge_stages, judge_stress
from wattune.benchmarks.physics.judgement import Judgement
from wattune.benchmarks.physics.limits import judge_profiles, judge_table
from wattune.benchmarks.physics.published import judge_published
from wattune.benchmarks.result import Bench, Goal, at_least
from wattune.core.workload import Workload
from wattune.physics.catalog import load_model
from wattune.physics.gpu_model import GpuModel
from wattune.physics.spend import tabulate
from wattune.physics.stepped import Machine, simulated_seconds_per_second
from wattune.workloads.catalog import make_workload

CASES = (("a100", "resnet50"), ("a100-80gb", "gpt3-175b@1/8:1"))


def judge_speed() -> tuple[list[Goal], list[str]]:
    """The goal that stepped time runs a thousand times faster than what it simulates, and how long a table takes."""
    goals, notes = [], []
    for gpu, name in CASES:
        model, workload = load_model(gpu), make_workload(name)
        what = f"{workload.name} on {gpu} (simulated)"
        faster = simulated_seconds_per_second(Machine.of(model, workload))
        goals.append(at_least(f"stepped time, {what}: simulated seconds per second", faster, 1000))
        milliseconds = median(_tabulate_ms(model, workload) for _ in range(9))
        clocks = len(model.clocks[0].sm_mhz)
        notes.append(f"An iteration of {what} at all {clocks} clocks at once: {milliseconds:.2f} ms.")
    return goals, notes


def _tabulate_ms(model: GpuModel, workload: Workload) -> float:
    start_s = time.perf_counter()
    tabulate(model, workload)
    return (time.perf_counter() - start_s) * 1000


OnFile = Callable[[Path], None]

_NOTES = (
    "Fits never see what they are judged on. Three limits, four clocks and thirty settings are chosen as each row "
    "says, the same for every file.",
    "Priors and shapes were chosen by errors at points left out of the public V100, A40 and A100 files, so the figures "
    "of these are somewhat flattered; files of other parts are the stricter test.",
    "noise floor: error of the best curve that never turns, drawn through all points, those judged on included. Where "
    "it is near the goal, the measurements themselves scatter about as much.",
)


def bench_physics(data: Path | None, *, on_file: OnFile | None = None) -> Bench:
    """All comparisons that the files under `data` allow, and those with published figures, which need none."""
    judgements = [*(_judge_files(data, on_file or _ignored) if data else []), *judge_stress()]
    published, published_goals = judge_published()
    speed_goals, speed_notes = judge_speed()
    goals = [goal for judgement in judgements if (goal := judgement.goal) is not None]
    notes = [*_NOTES, *speed_notes]
    if data is None:
        notes.append("No measurements were given, so no fit was judged: use --data DIR or set WATTUNE_DATA.")
    return Bench(
        bench="physics",
        simulated=True,
        rows=(*(judgement.row for judgement in judgements), *published),
        goals=(*goals, *published_goals, *speed_goals),
        notes=tuple(notes),
    )


def _judge_files(data: Path, on_file: OnFile) -> list[Judgement]:
    files = data_files(data)
    found: list[Judgement] = []
    for file in with_columns(files, zeus_tables.COLUMNS):
        on_file(file)
        found += judge_table(file)
    found += judge_profiles(with_columns(files, zeus_profiles.COLUMNS))
    for columns, judge in ((stage_profiles.COLUMNS, judge_stages), (overlap_sweep.COLUMNS, judge_overlap)):
        for file in with_columns(files, columns):
            on_file(file)
            found += judge(file)
    for file in files:
        if file.suffix == ".json" and is_clock_sweep(file):
            on_file(file)
            found += judge_clock_sweep(file)
    return found


def _ignored(file: Path) -> None:
    del file
