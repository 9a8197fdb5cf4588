"""`wattune bench live`: plays every arm on every GPU, one run at a time, and saves the runs to judge them again."""

from __future__ import annotations

import importlib.util
import json
import random
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

from wattune.core.codec import JsonReader, to_json
from wattune.core.errors import InputError
from wattune.core.output_file import write_text
from wattune.emulator.library import build_library
from wattune_bench.live.arms import ARMS, ZEUS, LiveCase
from wattune_bench.live.play import Played, play
from wattune_bench.live.rows import judged, live_rows
from wattune_bench.live.training import EPOCHS
from wattune_bench.live.truth import Bound
from wattune_bench.result import Bench, Row

GPUS = ("a100", "rtx-3080-ti")
SWITCHINGS = ("ideal", "real")
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
    switchings: tuple[str, ...] = SWITCHINGS
    arms: tuple[str, ...] = ARMS
    workloads: tuple[str, ...] = WORKLOADS
    seed: int = 0
    slowdown: float = 0.05
    traces: Path | None = None
    """The folder to which every run is saved."""
    zeus: Path | None = None
    """A folder with the packages of Zeus, where it is not installed."""
    busy: int = 0
    """Processes that keep the CPU busy meanwhile."""

    @property
    def has_zeus(self) -> bool:
        return self.zeus is not None or importlib.util.find_spec("zeus") is not None


def bench_live(asked: LiveBench, *, on_step: OnStep | None = None) -> Bench:
    """Play every arm on every GPU, one run at a time."""
    if importlib.util.find_spec("torch") is None:
        raise InputError("the program of this bench needs PyTorch", hint="pip install 'wattune[torch]'")
    library, cases = build_library(asked.cache_dir), list(live_cases(asked))
    rows: list[Row] = []
    with _ended_by_signals(), busy_cpu(asked.busy):
        for number, case in enumerate(cases):
            if on_step is not None:
                on_step(f"{case.gpu}, {case.switching} switching: {case.arm}", number, len(cases))
            played = play(case, library=library, zeus=asked.zeus)
            if asked.traces is not None:
                save(asked.traces, case, played)
            rows += live_rows(case, played)
    is_missing = ZEUS in asked.arms and not asked.has_zeus
    note = "Zeus is not installed here: pip install './benches[peers]', or --zeus FOLDER"
    return judged(rows, notes=(note,) if is_missing else ())


@contextmanager
def _ended_by_signals() -> Iterator[None]:
    """Let a signal that asks this process to stop unwind the block, so that no program is left behind."""

    def stop(number: int, _frame: FrameType | None) -> None:
        raise SystemExit(128 + number)

    numbers = [number for number in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(number) is signal.SIG_DFL]
    for number in numbers:
        signal.signal(number, stop)
    try:
        yield
    finally:
        for number in numbers:
            signal.signal(number, signal.SIG_DFL)


@contextmanager
def busy_cpu(processes: int) -> Iterator[None]:
    """Keep the CPU busy with so many processes until the block ends."""
    with ExitStack() as stack:
        for _ in range(processes):
            spinning = subprocess.Popen([sys.executable, "-S", "-c", "while True: pass"])
            stack.callback(spinning.wait)
            stack.callback(spinning.kill)
        yield


def bench_saved(folder: Path) -> Bench:
    """Judge saved runs again."""
    runs = sorted(saved(folder), key=lambda one: (one[0].run, one[0].gpu, one[0].switching, ARMS.index(one[0].arm)))
    rows = [row for case, played in runs for row in live_rows(case, played)]
    if not rows:
        raise InputError(f"there are no saved runs in {folder}", hint="save some with --traces FOLDER")
    return judged(rows, notes=(f"Judged again from {len(runs)} saved traces.",))


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
    """Write what a run left, with the node at each step."""
    file = folder / f"{case.gpu}-{case.switching}-{case.arm}-{case.seed}.json"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        write_text(file, json.dumps({"case": to_json(case), "played": to_json(played)}) + "\n")
    except OSError as error:
        raise InputError(f"cannot write {file}: {error.strerror}", hint="name another folder with --traces") from None


def saved(folder: Path) -> Iterator[tuple[LiveCase, Played]]:
    """Read the saved runs of a folder."""
    for file in sorted(folder.glob("*.json")):
        reader = JsonReader(source=str(file))
        try:
            document = json.loads(file.read_text())
            case, played = (
                reader.read(LiveCase, document["case"], "case"),
                reader.read(Played, document["played"], "played"),
            )
            if case.arm not in ARMS:
                raise ValueError(f"there is no arm {case.arm!r}")
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise InputError(f"{file} is not a saved run: {error}", hint="save runs with --traces FOLDER") from None
        yield case, played
