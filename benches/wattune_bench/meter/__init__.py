"""`wattune bench meter`: what a measured span costs and how right it is, beside ZeusMonitor's window."""

from __future__ import annotations

import importlib.util
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from wattune.emulator.emulated_gpu import EmulatedGpu
from wattune.emulator.library import build_library
from wattune.emulator.node import NODE_VARIABLE, Node
from wattune.physics.catalog import load_model
from wattune.physics.load_table import LoadTable
from wattune.physics.spend import tabulate
from wattune.workloads.catalog import make_workload
from wattune_bench.result import Bench, Goal, Row, at_least, at_most

GPU_COUNTS = (1, 8)
LOADS = ("steady", "resnet50")


def bench_meter(*, cache_dir: Path, quick: bool = False) -> Bench:
    """Cost, accuracy, sampler and import times, each beside its peer or bound."""
    library = build_library(cache_dir)
    tools = ("wattune", "zeus") if importlib.util.find_spec("zeus") else ("wattune",)
    cost = _cost_rows(library, tools, repetitions=100 if quick else 2000)
    accuracy = _accuracy_rows(library, tools, repetitions=30 if quick else 300)
    sampler = _sampler_row(library, seconds=2 if quick else 10)
    callback = _callback_row(library, repetitions=100 if quick else 2000)
    imports = _import_rows(tools, repetitions=3 if quick else 9)
    notes = [
        "The counters of the cost rows never stand still, so that no tool takes its path for empty windows.",
        "zeus works out joules whenever a window ends, wattune when its result is asked for. Goals compare "
        "with_result_us, in which both have done so; span_us is a span whose result nobody asks for.",
    ]
    if "zeus" not in tools:
        notes.append("zeus is not installed here, so its columns are empty: pip install './benches[peers]'")
    goals = (*_cost_goals(cost), *_accuracy_goals(accuracy), *_other_goals(sampler, callback, imports))
    return Bench(
        bench="meter",
        simulated=True,
        rows=(*cost, *accuracy, sampler, callback, *imports),
        goals=goals,
        notes=tuple(notes),
    )


def _cost_rows(library: Path, tools: Sequence[str], *, repetitions: int) -> list[Row]:
    rows: list[Row] = []
    for count in GPU_COUNTS:
        for tool in tools:
            gpus = _quick_counters(count)
            found = _probe("cost", tool, library, gpus, repetitions=repetitions, load="steady")
            rows.append(
                {
                    "tool": tool,
                    "gpus": count,
                    "span_us": found["span_us"],
                    "with_result_us": found.get("with_result_us", found["span_us"]),
                    "nvml_calls": found["nvml_calls"],
                }
            )
    return rows


def _quick_counters(count: int) -> list[EmulatedGpu]:
    """A100s whose counters move ten million times a second, fast enough for every window to see joules."""
    model = load_model("a100")
    gpus = [EmulatedGpu.of(model, index) for index in range(count)]
    return [
        replace(gpu, gain=1000.0, spec=replace(gpu.spec, sensors=replace(gpu.spec.sensors, counter_period_s=1e-7)))
        for gpu in gpus
    ]


def _accuracy_rows(library: Path, tools: Sequence[str], *, repetitions: int) -> list[Row]:
    rows: list[Row] = []
    for load in LOADS:
        for tool in tools:
            gpus = [EmulatedGpu.of(load_model("a100"))]
            found = _probe("accuracy", tool, library, gpus, repetitions=repetitions, load=load, clock="virtual")
            rows += [{"tool": tool, "load": load, "windows": kind, **figures} for kind, figures in found.items()]
    return rows


def _sampler_row(library: Path, *, seconds: int) -> Row:
    gpus = [EmulatedGpu.of(load_model("a100"), index) for index in range(8)]
    found = _probe("sampler", "wattune", library, gpus, repetitions=seconds)
    return {"sampler": "8 GPUs every 20 ms", "cpu_percent": found["cpu_percent"], "samples": found["samples"]}


def _callback_row(library: Path, *, repetitions: int) -> Row:
    """What a callback that tunes takes of the training thread; the share is that of a step of 1 ms."""
    found = _probe("callback", "wattune", library, [EmulatedGpu.of(load_model("a100"))], repetitions=repetitions)
    return {"callback": "1 GPU, tuned", **found, "step_percent": found["step_us"] / 10}


def _probe(
    probe: str,
    tool: str,
    library: Path,
    gpus: list[EmulatedGpu],
    *,
    repetitions: int,
    load: str = "resnet50",
    clock: Literal["wall", "virtual"] = "wall",
) -> dict[str, Any]:
    """Run one probe in a process of its own, on a node of its own."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="wattune-bench-")))
        node = stack.enter_context(Node.create(folder / "node", gpus, library=library, clock=clock))
        for index in range(len(gpus)):
            node.play(index, _load(load))
        environment = {
            **os.environ,
            NODE_VARIABLE: str(node.path),
            "LD_LIBRARY_PATH": str(library.parent),
            "CUDA_VISIBLE_DEVICES": ",".join(str(index) for index in range(len(gpus))),
        }
        words = [probe, tool, str(node.path), str(library), str(repetitions)]
        command = [sys.executable, "-m", "wattune_bench.meter.probe", *words]
        output = subprocess.run(command, env=environment, check=True, stdout=subprocess.PIPE).stdout
    found: dict[str, Any] = json.loads(output.splitlines()[-1])
    return found


def _load(name: str) -> tuple[LoadTable, ...]:
    tables = tabulate(load_model("a100"), make_workload("resnet50"))
    return tuple(table.merged((0,)) for table in tables) if name == "steady" else tables


def _import_rows(tools: Sequence[str], *, repetitions: int) -> list[Row]:
    python = [sys.executable, "-c"]
    commands = {
        "python -c pass": [*python, "pass"],
        "import wattune": [*python, "import wattune"],
    }
    for words in (("--help",), ("run", "--help"), ("devices",), ("history",)):
        commands[f"wattune {' '.join(words)}"] = [sys.executable, "-m", "wattune", *words]
    if "zeus" in tools:
        commands["import zeus.monitor"] = [*python, "import zeus.monitor"]
    return [{"command": name, "cpu_s": _cpu_s(command, repetitions)} for name, command in commands.items()]


def _cpu_s(command: list[str], repetitions: int) -> float:
    """Median CPU time of a command, its first run (cold caches) left out."""
    times = []
    for _ in range(repetitions + 1):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        times.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return statistics.median(times[1:])


def _cost_goals(rows: list[Row]) -> list[Goal]:
    goals = []
    for count in GPU_COUNTS:
        ours, peer = (_find(rows, tool=tool, gpus=count) for tool in ("wattune", "zeus"))
        ratios = {
            name: ours[name] / peer["with_result_us"] if ours and peer else None
            for name in ("with_result_us", "span_us")
        }
        calls = ours["nvml_calls"] / peer["nvml_calls"] if ours and peer else None
        goals += [
            at_most(f"span and its result, {count} GPU(s), as a share of zeus's window", ratios["with_result_us"], 0.5),
            Goal(
                f"span without its result, {count} GPU(s), as a share of zeus's window",
                ratios["span_us"],
                "for comparison",
                None,
                "not like for like: zeus's window includes its result",
            ),
            at_most(f"NVML calls per span, {count} GPU(s), as a share of zeus's", calls, 1.0),
        ]
    return goals


def _accuracy_goals(rows: list[Row]) -> list[Goal]:
    goals = []
    for load in LOADS:
        long = _find(rows, tool="wattune", load=load, windows="long")
        short = _find(rows, tool="wattune", load=load, windows="short")
        if long and short:
            worst, inside = long["error_worst_percent"], short["inside_bar_percent"]
            goals.append(at_most(f"worst error of 5-8 s windows, {load} (simulated)", worst, 0.5, unit=" %"))
            goals.append(at_least(f"short windows whose error bar holds, {load} (simulated)", inside, 95, unit=" %"))
    return goals


def _other_goals(sampler: Row, callback: Row, imports: list[Row]) -> list[Goal]:
    nothing, package, help_page = (row["cpu_s"] for row in imports[:3])
    return [
        at_most("sampler, 8 GPUs every 20 ms, share of one core", sampler["cpu_percent"], 3, unit=" %"),
        at_most("callback of a trainer, share of a step of 1 ms", callback["step_percent"], 0.5, unit=" %"),
        at_most("counting a step inside a program, share of a step of 1 ms", callback["hook_us"] / 10, 0.1, unit=" %"),
        at_most("CPU seconds of `import wattune` above `python -c pass`", package - nothing, 0.3),
        at_most("CPU seconds of `wattune --help` above `python -c pass`", help_page - nothing, 0.5),
    ]


def _find(rows: list[Row], **wanted: object) -> Row | None:
    return next((row for row in rows if all(row.get(key) == value for key, value in wanted.items())), None)
