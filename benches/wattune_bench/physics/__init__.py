"""`wattune bench physics`: fits on measurements that they have not seen, and the catalogue on published outcomes.

Published outcomes are what others measured when they trained at lower clocks.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

from wattune.core.workload import Workload
from wattune.physics.catalog import load_model
from wattune.physics.gpu_model import GpuModel
from wattune.physics.spend import tabulate
from wattune.workloads.catalog import make_workload
from wattune_bench.datasets import overlap_sweep, stage_profiles, zeus_profiles, zeus_tables
from wattune_bench.datasets.clock_sweep import is_clock_sweep
from wattune_bench.datasets.find import data_files, with_columns
from wattune_bench.physics.fits import (
    judge_clock_sweep,
    judge_overlap,
    judge_profiles,
    judge_stages,
    judge_stress,
    judge_table,
)
from wattune_bench.physics.judgement import Judgement
from wattune_bench.physics.published import judge_published
from wattune_bench.physics.streams import judge_streams
from wattune_bench.physics.training import judge_training, judge_volta, training_savings
from wattune_bench.result import Bench

OnFile = Callable[[Path], None]

_NOTES = (
    "Fits never see what they are judged on. Three limits, four clocks and thirty settings are chosen as each row "
    "states, the same for every file.",
    "Priors and shapes were chosen by errors at points left out of the public V100, A40 and A100 files, so the figures "
    "of these are somewhat optimistic; files of other GPUs are the stricter test.",
    "noise floor: error of the best monotone curve through all points, those judged on included. Where it is near the "
    "goal, the measurements themselves scatter about as much.",
)
_TABULATED = (("a100", "resnet50"), ("a100-80gb", "gpt3-175b@1/8:1"))


def bench_physics(data: Path | None, *, on_file: OnFile | None = None) -> Bench:
    """Run all comparisons that the files under `data` allow, and those with published figures, which need none."""
    judgements = [*(_judge_files(data, on_file or _ignored) if data else []), *judge_stress(), *judge_volta()]
    published, published_goals = judge_published()
    published += training_savings(data_files(data) if data else [])
    notes = [*_NOTES, *_speed_notes()]
    if data is None:
        notes.append("No measurements were given, so no fit was judged: use --data DIR or set WATTUNE_DATA.")
    return Bench(
        bench="physics",
        simulated=True,
        rows=(*(judgement.row for judgement in judgements), *published),
        goals=(*(judgement.goal for judgement in judgements if judgement.goal is not None), *published_goals),
        notes=tuple(notes),
    )


def _judge_files(data: Path, on_file: OnFile) -> list[Judgement]:
    files = data_files(data)
    found: list[Judgement] = []
    for file in with_columns(files, zeus_tables.COLUMNS):
        on_file(file)
        found += judge_table(file)
    found += judge_profiles(with_columns(files, zeus_profiles.COLUMNS))
    for columns, judge in (
        (stage_profiles.COLUMNS, judge_stages),
        (overlap_sweep.COLUMNS, judge_overlap),
        (overlap_sweep.COLUMNS, judge_streams),
    ):
        for file in with_columns(files, columns):
            on_file(file)
            found += judge(file)
    for file in files:
        if file.suffix == ".json" and is_clock_sweep(file):
            on_file(file)
            found += judge_clock_sweep(file)
    return found + judge_training(files)


def _ignored(file: Path) -> None:
    del file


def _speed_notes() -> list[str]:
    """Report how long a table of all clocks takes."""
    notes = []
    for gpu, name in _TABULATED:
        model, workload = load_model(gpu), make_workload(name)
        milliseconds = median(_tabulate_ms(model, workload) for _ in range(9))
        notes.append(
            f"An iteration of {workload.name} on {gpu} (simulated) at all {len(model.clocks[0].sm_mhz)} clocks at "
            f"once: {milliseconds:.2f} ms."
        )
    return notes


def _tabulate_ms(model: GpuModel, workload: Workload) -> float:
    start_s = time.perf_counter()
    tabulate(model, workload)
    return (time.perf_counter() - start_s) * 1000
