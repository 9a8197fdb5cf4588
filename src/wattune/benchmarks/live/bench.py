"""`wattune bench live`: plays every arm on every GPU, one run at a time, and saves the runs to judge them again."""

from __future__ import annotations

import importlib.util
import json
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from wattune.benchmarks.live.arms import ARMS, ZEUS
from wattune.benchmarks.live.play import LiveCase, Played, play
from wattune.benchmarks.live.rows import judged, live_row
from wattune.benchmarks.live.training import EPOCHS
from wattune.benchmarks.live.truth import Bound, parse_trace, trace_text
from wattune.benchmarks.result import Bench, Row
from wattune.core.codec import JsonReader, to_json
from wattune.core.errors import InputError
from wattune.emulator.library import build_library

GPUS = ("a100", "rtx-3080-ti")
SWITCHINGS: tuple[Literal["ideal", "real"], ...] = ("ideal", "real")
WORKLOADS = ("resnet50", "bert-base:8", "resnet50:32", "bert-base:32")
"""One for each run in turn: steps of 20 to 140 ms."""
_WIDTHS = (32, 256)

OnStep = Callable[[str, int, int], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveBench:
    """The options of the bench."""

    cache_dir: Path
    runs: int = 1
    seconds: float = 30.0
    gpus: tuple[str, ...] = GPUS
    switchings: tuple[Literal["ideal", "real"], ...] = SWITCHINGS
    arms: tuple[str, ...] = ARMS
    workloads: tuple[str, ...] = WORKLOADS
    seed: int = 0
    slowdown: float = 0.05
    traces: Path | None = None
    """The folder to which every run is saved."""
    zeus: Path | None = None
    """A folder with the packages of Zeus, where it is not installed."""

    @property
    def has_zeus(self) -> bool:
        return self.zeus is not None or importlib.util.find_spec("zeus") is not None


def bench_live(asked: LiveBench, *, on_step: OnStep | None = None) -> Bench:
    """Play every arm on every GPU, one run at a time."""
    if importlib.util.find_spec("torch") is None:
        raise InputError("the program of this bench needs PyTorch", hint="pip install 'wattune[torch]'")
    library, cases = build_library(asked.cache_dir), list(live_cases(asked))
    if asked.traces is not None:
        asked.traces.mkdir(parents=True, exist_ok=True)
    rows: list[Row] = []
    for number, case in enumerate(cases):
        if on_step is not None:
            on_step(f"{case.gpu}, {case.switching} switching: {case.arm}", number, len(cases))
        played = play(case, library=library, zeus=asked.zeus)
        if asked.traces is not None:
            save(asked.traces, case, played)
        rows.append(live_row(case, played))
    is_missing = ZEUS in asked.arms and not asked.has_zeus
    note = "Zeus is not installed here: pip install 'wattune[bench]', or --zeus FOLDER"
    return judged(rows, notes=(note,) if is_missing else ())


def bench_saved(folder: Path) -> Bench:
    """Judge saved runs again."""
    rows = [live_row(case, played) for case, played in saved(folder)]
    if not rows:
        raise InputError(f"there are no saved runs in {folder}", hint="save some with --traces FOLDER")
    return judged(rows, notes=(f"Judged again from {len(rows)} saved traces.",))


def live_cases(asked: LiveBench) -> Iterator[LiveCase]:
    """List the runs; all arms of a run get the same program, another run gets another one."""
    for run in range(asked.runs):
        for gpu in asked.gpus:
            seed = asked.seed + run
            workload, generator = asked.workloads[seed % len(asked.workloads)], random.Random(f"{gpu} {seed}")
            step_s = Bound.of(gpu, workload, slowdown=asked.slowdown).default.time_s
            epoch = max(round(asked.seconds * generator.uniform(0.95, 1.05) / step_s / EPOCHS), 1)
            width = generator.randint(*_WIDTHS)
            for switching in asked.switchings:
                for arm in asked.arms:
                    if arm == ZEUS and not asked.has_zeus:
                        continue
                    yield LiveCase(
                        gpu=gpu,
                        switching=switching,
                        arm=arm,
                        run=run,
                        seed=seed,
                        workload=workload,
                        steps=EPOCHS * epoch,
                        width=width,
                        slowdown=asked.slowdown,
                        seconds=asked.seconds,
                    )


def save(folder: Path, case: LiveCase, played: Played) -> None:
    """Write what a run left: a JSON document, and the node over time as CSV beside it."""
    name = f"{case.gpu}-{case.switching}-{case.arm}-{case.seed}"
    (folder / f"{name}.csv").write_text(trace_text(played.trace))
    document = {"case": to_json(case), "played": to_json(replace(played, trace=()))}
    (folder / f"{name}.json").write_text(json.dumps(document, indent=2) + "\n")


def saved(folder: Path) -> Iterator[tuple[LiveCase, Played]]:
    """Read the saved runs of a folder."""
    for file in sorted(folder.glob("*.json")):
        reader = JsonReader(source=str(file))
        try:
            document = json.loads(file.read_text())
            case, played = reader.read(LiveCase, document["case"]), reader.read(Played, document["played"])
            trace = parse_trace(file.with_suffix(".csv").read_text())
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise InputError(f"{file} is not a saved run: {error}", hint="save runs with --traces FOLDER") from None
        yield case, replace(played, trace=trace)
