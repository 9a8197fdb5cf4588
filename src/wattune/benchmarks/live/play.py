"""Plays one live run: the simulated GPU, the processes of the arm on it, and what the node shows of them."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from wattune.benchmarks.live.arms import (
    HOLD,
    JOB,
    Document,
    Training,
    claim_of,
    command_of,
    parse_document,
    setting_to_hold,
    show_job_command,
    sweep_command,
)
from wattune.benchmarks.live.processor_time import ProcessorTime
from wattune.benchmarks.live.truth import Claim, TracePoint
from wattune.control.step_file import following_environment
from wattune.emulator.launch import Scenario, assign_load, environment_for, open_scenario
from wattune.emulator.node import Node
from wattune.workloads.catalog import make_workload

_SAMPLE_S = 0.5
_LONGEST_S = 300.0
"""A command that takes this much longer than ten times its program is ended."""
_PHASE_S = 0.1
"""The period of the energy counter: a run begins at a random moment of it."""
_GRACE_S = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveCase:
    """One run of the bench."""

    gpu: str
    switching: Literal["ideal", "real"]
    arm: str
    run: int
    seed: int
    workload: str
    steps: int
    width: int
    slowdown: float
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Played:
    """What one run left: its claim, the node over time, and what it cost the host."""

    claim: Claim
    process_cpu_percent: float | None
    """Of one core, while the program made its steps."""
    load: float
    """Of the host in the last minute, at the end."""
    problem: str | None = None
    trace: tuple[TracePoint, ...] = field(default=(), repr=False)


def play(case: LiveCase, *, library: Path, zeus: Path | None) -> Played:
    """Play a run on a node of its own; nothing that another run has learned is known to it."""
    scenario = Scenario(gpus=(case.gpu,), workload=make_workload(case.workload), switching=case.switching)
    with (
        tempfile.TemporaryDirectory(prefix="wattune-live-") as name,
        open_scenario(scenario, Path(name), library=library) as node,
    ):
        folder = Path(name)
        stage = _Stage(case, scenario, node, folder, _environment(node, folder))
        training = Training(
            steps=case.steps, width=case.width, seed=case.seed, slowdown=case.slowdown, folder=folder, zeus=zeus
        )
        time.sleep(random.Random(case.seed).uniform(0, _PHASE_S))
        return _play(stage, training)


def _environment(node: Node, folder: Path) -> dict[str, str]:
    """Return the environment of a follower with a store and settings of its own."""
    others = ("WATTUNE_", "CUDA_VISIBLE_DEVICES", "LD_PRELOAD")
    before = {name: value for name, value in os.environ.items() if not name.startswith(others)}
    own = {"WATTUNE_STORE": str(folder / "store.db"), "WATTUNE_CONFIG": str(folder / "none.toml")}
    environment = environment_for(node, folder, before={**before, **own})
    return following_environment(environment, node.library)


@dataclass(frozen=True, slots=True)
class _Ended:
    """A command that has ended."""

    document: Document | None
    start_s: float
    end_s: float
    processor: ProcessorTime
    problem: str | None


@dataclass(frozen=True, slots=True)
class _Stage:
    """Where commands of a run are started."""

    case: LiveCase
    scenario: Scenario
    node: Node
    folder: Path
    environment: Mapping[str, str]

    def run(self, command: Sequence[str]) -> _Ended:
        """Run a command to its end and watch the processor time of its processes."""
        start_s, end_s = time.monotonic(), time.monotonic() + 10 * self.case.seconds + _LONGEST_S
        output, errors = self.folder / "output", self.folder / "errors"
        processor = ProcessorTime(str(self.node.path), self.folder)
        with output.open("w") as out, errors.open("w") as err:
            process = subprocess.Popen(
                command, env=dict(self.environment), cwd=self.folder, stdout=out, stderr=err, start_new_session=True
            )
            try:
                assign_load(self.node, self.scenario, process.pid)
                while process.poll() is None and time.monotonic() < end_s:
                    time.sleep(_SAMPLE_S)
                    processor.sample()
            finally:
                _end(process)
        problem = f"exit code {process.returncode}: {_complaint(errors)}" if process.returncode else None
        return _Ended(parse_document(output.read_text()), start_s, time.monotonic(), processor, problem)


def _complaint(errors: Path) -> str:
    """Return the last line that a command wrote to standard error, hints left out."""
    lines = errors.read_text(errors="replace").strip().splitlines()
    return next((line for line in reversed(lines) if not line.startswith("hint:")), "nothing on standard error")[:200]


def _end(process: subprocess.Popen[bytes]) -> None:
    """End a command that still runs, and its program."""
    if process.poll() is not None:
        return
    os.killpg(process.pid, signal.SIGTERM)
    try:
        process.wait(_GRACE_S)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _play(stage: _Stage, training: Training) -> Played:
    arm, swept = stage.case.arm, None
    if arm == HOLD:
        swept = stage.run(sweep_command(training))
        for file in stage.folder.glob("*.stamps"):
            file.unlink()
    setting = None if swept is None or swept.document is None else setting_to_hold(swept.document)
    ended = stage.run(command_of(arm, training, setting=setting))
    stamps_s = _stamps_s(stage.folder)
    trace = _trace(stage.node, ended, stamps_s)
    document = ended.document
    if arm == JOB:
        document = stage.run(show_job_command()).document
    elif arm == HOLD:
        document = None if swept is None else swept.document
    elif training.claim_file.exists():
        document = parse_document(training.claim_file.read_text())
    return Played(
        claim=claim_of(arm, document),
        process_cpu_percent=ended.processor.percent(stamps_s[0], stamps_s[-1]) if stamps_s else None,
        load=os.getloadavg()[0],
        problem=ended.problem or (None if swept is None else swept.problem),
        trace=trace,
    )


def _stamps_s(folder: Path) -> list[float]:
    """Return the ends of all steps of all programs, by the monotonic clock."""
    found: list[float] = []
    for file in folder.glob("*.stamps"):
        numbers = memoryview(file.read_bytes()).cast("q")
        found += [number / 1e9 for number in numbers[1 : numbers[0] + 1]]
    return sorted(found)


def _trace(node: Node, ended: _Ended, stamps_s: Sequence[float]) -> tuple[TracePoint, ...]:
    """Read from the node, whose past is known exactly, what it had spent and done at each of these times."""
    ahead_s = time.monotonic() - node.now_s()
    return (
        TracePoint.of("start", node.at(0, ended.start_s - ahead_s)),
        *(TracePoint.of("step", node.at(0, stamp_s - ahead_s)) for stamp_s in stamps_s),
        TracePoint.of("end", node.at(0, ended.end_s - ahead_s)),
    )
