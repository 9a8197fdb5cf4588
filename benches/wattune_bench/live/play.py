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

from wattune.emulator.launch import Scenario, assign_load, environment_for, open_scenario
from wattune.emulator.node import Node
from wattune.process.step_file import following_environment
from wattune.workloads.catalog import make_workload
from wattune_bench.live.arms import (
    HOLD,
    JOB,
    SHOW_JOB,
    SWEEP_SHARE,
    Claim,
    Document,
    LiveCase,
    claims_of,
    command_of,
    parse_document,
    setting_to_hold,
    sweep_command,
)
from wattune_bench.live.processor_time import ProcessorTime
from wattune_bench.live.training import STEPS_VARIABLE
from wattune_bench.live.truth import TracePoint

_SAMPLE_S = 0.5
_LONGEST_S = 300.0
"""A command that takes this much longer than ten times its program is ended."""
_PHASE_S = 0.1
"""The period of the energy counter: a run begins at a random moment of it."""
_GRACE_S = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Played:
    """What one run left: its claims, the node over time, and what it cost the host."""

    claims: Mapping[str, Mapping[str, Claim]]
    """By who claims, and by the quantity."""
    process_cpu_percent: float | None
    """Of one core, while the program made its steps."""
    load: float
    """Of the host in the last minute, at the end."""
    problem: str | None = None
    trace: tuple[TracePoint, ...] = field(default=(), repr=False)


def play(case: LiveCase, *, library: Path, zeus: Path | None) -> Played:
    """Play a run on a node of its own; nothing that another run has learned is known to it."""
    scenario = Scenario(
        gpus=(case.gpu,),
        workload=make_workload(case.workload),
        switching="real" if case.switching == "real" else "ideal",
    )
    with (
        tempfile.TemporaryDirectory(prefix="wattune-live-") as name,
        open_scenario(scenario, Path(name), library=library) as node,
    ):
        time.sleep(random.Random(case.seed).uniform(0, _PHASE_S))
        return _play(_Stage(case, scenario, node, Path(name)), zeus)


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
    """Where the commands of a run are started."""

    case: LiveCase
    scenario: Scenario
    node: Node
    folder: Path

    def environment(self, steps: int) -> dict[str, str]:
        """Return the environment of a program that follows the node, with a store and settings of its own."""
        others = ("WATTUNE_", "CUDA_VISIBLE_DEVICES", "LD_PRELOAD")
        before = {name: value for name, value in os.environ.items() if not name.startswith(others)}
        own = {"WATTUNE_STORE": str(self.folder / "store.db"), "WATTUNE_CONFIG": str(self.folder / "none.toml")}
        own |= {"WATTUNE_REQUIRE_GPU": "1", STEPS_VARIABLE: str(steps)}
        environment = environment_for(self.node, self.folder, before={**before, **own})
        return following_environment(environment, self.node.library)

    def run(self, command: Sequence[str], *, steps: int = 0) -> _Ended:
        """Run a command to its end and watch the processor time of its processes; its program does so many steps."""
        start_s, latest_s = time.monotonic(), time.monotonic() + 10 * self.case.seconds + _LONGEST_S
        output, errors = self.folder / "output", self.folder / "errors"
        processor = ProcessorTime(str(self.node.path), self.folder)
        with output.open("w") as out, errors.open("w") as err:
            environment = self.environment(steps)
            process = subprocess.Popen(
                command, env=environment, cwd=self.folder, stdout=out, stderr=err, start_new_session=True
            )
            try:
                assign_load(self.node, self.scenario, process.pid)
                while process.poll() is None and time.monotonic() < latest_s:
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


def _play(stage: _Stage, zeus: Path | None) -> Played:
    case, folder = stage.case, stage.folder
    swept = None
    if case.arm == HOLD:
        swept = stage.run(sweep_command(case, folder), steps=max(case.steps // SWEEP_SHARE, 2))
    for file in folder.glob("*.stamps"):  # of the sweep's programs
        file.unlink()
    found = None if swept is None else swept.document
    ended = stage.run(command_of(case, folder, setting=setting_to_hold(found), zeus=zeus), steps=case.steps)
    stamps_s, claim_file = _stamps_s(folder), folder / "claim.json"
    trace = _trace(stage.node, ended, stamps_s)
    return Played(
        claims=claims_of(
            case.arm,
            printed=ended.document,
            swept=found,
            job=stage.run(SHOW_JOB).document if case.arm == JOB else None,
            inside=parse_document(claim_file.read_text()) if claim_file.exists() else None,
        ),
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
