"""Running a program whose ranks measure partitions: what it is asked for, its progress, and what it leaves behind."""

from __future__ import annotations

import json
import os
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from wattune.cli.calling_user import name_root_program
from wattune.cli.child import run_child
from wattune.cli.kernels.searching import bars, measured_kernels
from wattune.cli.output import stderr_console
from wattune.config import Config
from wattune.core.codec import to_json
from wattune.core.errors import DeviceError, InputError
from wattune.core.setting import Setting
from wattune.levels.overlap.partitions import PartitionedModel
from wattune.levels.overlap.space import choices
from wattune.levels.overlap.trial_file import (
    MeasureRequest,
    PartitionTrial,
    TrialHeader,
    read_header,
    read_passes,
    read_trials,
)
from wattune.levels.overlap.view.kernel_report import SearchedKernels
from wattune.physics.catalog import load_model
from wattune.store.fallback import keep_run, new_run
from wattune.store.records import FullRun, RunGpu, TrialRecord

if TYPE_CHECKING:
    from rich.console import Console

VARIABLE = "WATTUNE_KERNELS"
PASSES = "whole passes"
_POLL_S = 0.5


@dataclass(frozen=True, slots=True)
class RankRun:
    """How a program ended, and the trials that it added to the file."""

    exit_code: int
    started_at: datetime
    header: TrialHeader
    trials: tuple[PartitionTrial, ...]
    """Those that were added."""


def run_ranks(command_line: Sequence[str], request: MeasureRequest, model: PartitionedModel, *, quiet: bool) -> RankRun:
    """Run a program whose ranks measure what is requested, into its file; raise where it measured nothing."""
    file, started_at = Path(request.trials), datetime.now(UTC)
    name_root_program("its ranks set the clocks")
    known = _known(file, model)
    screen = stderr_console()
    # Lines of the program would be overwritten by the bars, unless they are printed above them.
    say = partial(screen.print, markup=False, soft_wrap=True) if screen.is_terminal else None
    with _followed(file, model, request, screen):
        code = run_child(command_line, environment=_environment(request), stdout_to_stderr=quiet, on_line=say).exit_code
    header = read_header(file)
    if header is None:
        if code:
            raise DeviceError(f"the command failed before it measured anything (exit code {code})", hint="see above")
        raise InputError(
            "the command measured nothing",
            hint="let it call measured_if_asked(executor, [hidden]): docs/how-to/overlap-kernels.md",
        )
    added = [trial for trial in read_trials(file, header) if trial.key not in known]
    return RankRun(code, started_at, header, tuple(added))


def _known(file: Path, model: PartitionedModel) -> set[object]:
    """Return what the file has already; refuse one of something else before the program starts."""
    before = read_header(file)
    if before is None:
        return set()
    if not before.executed:
        raise InputError(f"{file} has computed trials, which no ranks measured", hint="measure into another file")
    wanted = TrialHeader.of(model, gpu=before.gpu, simulated=before.simulated, executed=True)
    return {trial.key for trial in read_trials(file, wanted)}


def _environment(request: MeasureRequest) -> dict[str, str]:
    # The search uses many small matrices, on which several threads only wait for each other.
    threads = {"OPENBLAS_NUM_THREADS": os.environ.get("OPENBLAS_NUM_THREADS") or "1"}
    return {**os.environ, **threads, VARIABLE: json.dumps(to_json(request))}


@contextmanager
def _followed(file: Path, model: PartitionedModel, request: MeasureRequest, screen: Console) -> Iterator[None]:
    """Show a bar for each partition while the file grows."""
    done = threading.Event()
    with bars(screen) as show:

        def follow() -> None:
            while not done.wait(_POLL_S):
                for name, count in _counts(file).items():
                    show(name, count, _most(model, request, name, file))

        thread = threading.Thread(target=follow, daemon=True)
        thread.start()
        try:
            yield
        finally:
            done.set()
            thread.join()


def _counts(file: Path) -> Counter[str]:
    """Count the finished lines of a file by partition."""
    try:
        lines = file.read_bytes().split(b"\n")[1:-1]
    except OSError:
        return Counter()
    return Counter(json.loads(line).get("partition", PASSES) for line in lines)


def _most(model: PartitionedModel, request: MeasureRequest, name: str, file: Path) -> int | None:
    header = read_header(file)
    if request.budget is not None and name != PASSES:
        return request.budget
    if header is None or name == PASSES:
        return None
    return len(choices(model.partition(name), load_model(header.gpu)))


def searched_by_ranks(file: Path, header: TrialHeader, model: PartitionedModel) -> SearchedKernels:
    """Return what a file of ranks holds."""
    return measured_kernels(
        model, load_model(header.gpu), read_trials(file, header), read_passes(file, header), file=file
    )


def keep_trials(run: RankRun, file: Path, config: Config) -> None:
    """Store the trials that a program added."""
    header = run.header
    time_s = (datetime.now(UTC) - run.started_at).total_seconds()
    gpu = RunGpu(uuid="", name=header.gpu, simulated=header.simulated, time_s=time_s)
    details = {"layout": header.layout, "ranks": header.ranks, "file": str(file.absolute()), "exit": run.exit_code}
    stored = new_run("kernels", header.layout, started_at=run.started_at, gpus=[gpu] * header.ranks, details=details)
    records = tuple(
        TrialRecord(
            workload=f"{header.layout} {trial.partition}",
            gpu=header.gpu,
            simulated=header.simulated,
            choice_kind="partition",
            choice={"partition": trial.partition, **to_json(trial.choice)},
            setting=Setting(trial.choice.sm_mhz),
            cost=trial.cost,
        )
        for trial in run.trials
    )
    keep_run(FullRun(stored, records), store_url=config.store_url, state_dir=config.state_dir)
