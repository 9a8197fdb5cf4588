"""Kill processes that set the GPUs of an emulated node of eight, and time how long the GPUs stay set.

kind       what is killed
process    the tuner, while it holds a setting
applying   the tuner, which sets all its GPUs over and over
group      its whole process group
stopped    its process group, stopped first
terminal   its terminal is closed, then its process group is killed
restorer   the tuner, and then a `restore` while it restores; until then the watchdog is kept stopped
watchdog   the tuner and its watchdog: only `restore` restores then
"""

from __future__ import annotations

import os
import pty
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Literal

import psutil

from wattune.core.errors import DeviceError
from wattune.core.setting import Setting
from wattune.devices.journal import Journal
from wattune.emulator.launch import Scenario, environment_for, open_scenario
from wattune.emulator.library import build_library
from wattune.emulator.node import NO_PROCESS, Node
from wattune.physics.catalog import load_model
from wattune.physics.spend import tabulate
from wattune.workloads.catalog import make_workload
from wattune_bench.result import Bench, Row, at_most, part

Kind = Literal["process", "applying", "group", "stopped", "terminal", "restorer", "watchdog"]
KINDS: tuple[Kind, ...] = ("process", "applying", "group", "stopped", "terminal", "restorer", "watchdog")

GPUS = 8
FOUND = Setting(None, None, 350.0)
"""What the GPUs are set to before each round; the driver's default would hide a mistake."""

MOST_S = 2.0
KILLS_A_COMMAND = 14
"""Kills of each command of the command line: two of each kind."""

_GIVE_UP_S = 20.0
_START_LIMIT_S = 120.0
_POLL_S = 0.002

_TUNER = """
import itertools, sys, time
from wattune.api import open_gpus
from wattune.core.setting import Setting

with open_gpus("nvml") as gpus:
    for sm_mhz in itertools.cycle(gpus[0].spec.sm_clocks_mhz[20:]):
        for gpu in gpus:
            gpu.apply(Setting(sm_mhz, power_limit_w=200 + sm_mhz % 7))
        time.sleep(float(sys.argv[1]))
"""

_STEPS = "import time\nwhile True: time.sleep(0.05); print('step', flush=True)"

_GPU = 3
_ONE = ("--device", f"nvml:{_GPU}")
_WATTUNE = (sys.executable, "-m", "wattune")
COMMANDS: dict[str, tuple[str, ...]] = {
    "library": (sys.executable, "-c", _TUNER),
    "sweep": (*_WATTUNE, "sweep", *_ONE, "--iterations", "1", "--", "sleep", "0.2"),
    "switch-latency": (*_WATTUNE, "layers", "switch-latency", *_ONE, "--", "sleep", "600"),
    "run": (*_WATTUNE, "run", *_ONE, "--step-pattern", "step", "--", sys.executable, "-c", _STEPS),
}
"""Commands that set GPUs. The others (`attach`, `job run`, plans) open them by the same function."""


@dataclass(frozen=True, slots=True)
class KillBench:
    """How many rounds of which kinds."""

    rounds: int
    kinds: Sequence[Kind] = KINDS
    commands: Sequence[str] = ("library",)
    seed: int = 0


@dataclass(frozen=True, slots=True)
class Stage:
    """The node on which processes are killed, and their environment."""

    node: Node
    environment: dict[str, str]
    folder: Path

    @property
    def journal(self) -> Journal:
        return Journal(self.environment["WATTUNE_STATE"], self.environment["WATTUNE_LOCKS"])

    def is_restored(self) -> bool:
        return all(self.node.setting(index) == FOUND for index in range(self.node.count))

    def command(self, name: str, kind: Kind) -> list[str]:
        return [*COMMANDS[name], *(["0" if kind == "applying" else "0.05"] if name == "library" else [])]


def kill_rounds(bench: KillBench, *, cache_dir: Path, on_round: Callable[[int], None]) -> tuple[Row, ...]:
    """Run the rounds and return a row for each: kind, command, restored, seconds_to_restore, and what was left."""
    generator, rows = random.Random(bench.seed), []
    with _stage(cache_dir) as stage:
        for number in range(bench.rounds):
            kind = bench.kinds[number % len(bench.kinds)]
            # By another step than the kinds, so that each command meets each kind.
            command = bench.commands[number // len(bench.kinds) % len(bench.commands)]
            rows.append(_round(stage, kind, command, delay_s=generator.uniform(0.0, 0.03)))
            on_round(number + 1)
    return tuple(rows)


def kills_part(plans: Sequence[KillBench], *, cache_dir: Path, on_round: Callable[[int], None]) -> Bench:
    """Run the rounds of all plans as a section of the bench: a row for each kind and command."""
    rounds: list[Row] = []
    for plan in plans:
        before = len(rounds)
        rounds += kill_rounds(plan, cache_dir=cache_dir, on_round=lambda done, before=before: on_round(before + done))  # type: ignore[misc]
    return summed(rounds)


def summed(rounds: Sequence[Row]) -> Bench:
    """Sum the rounds up by kind and command, and judge them."""
    watched = [row for row in rounds if row["kind"] != "watchdog"]
    slowest_s = max((row["seconds_to_restore"] for row in watched), default=None)
    goals = (
        at_most("kills that left a GPU set, without a further command", _count(watched, "restored", equal=False), 0),
        at_most("slowest restoring after a kill", slowest_s, MOST_S, unit=" s"),
        at_most("kills that left an entry or a lock", _count(rounds, "left_entries"), 0),
        at_most("kills that left a process", _count(rounds, "left_processes"), 0),
        at_most(
            "kills that left a GPU set after `restore`, where the watchdog was killed too",
            _count([row for row in rounds if row["kind"] == "watchdog"], "restored", equal=False),
            0,
        ),
    )
    restorers = [row for row in rounds if row["kind"] == "restorer"]
    notes = (
        f"Kills: {len(rounds)} on an emulated node of {GPUS} GPUs (simulated). Of {len(restorers)} restorers, "
        f"{_count(restorers, 'set_after_kill')} were killed before they had restored all GPUs.",
    )
    return part(_rows(rounds), goals, notes)


def _count(rounds: Sequence[Row], name: str, *, equal: bool = True) -> int:
    return sum(bool(row[name]) == equal for row in rounds)


def _rows(rounds: Sequence[Row]) -> list[Row]:
    rows: list[Row] = []
    for kind, command in dict.fromkeys((row["kind"], row["command"]) for row in rounds):
        own = [row for row in rounds if (row["kind"], row["command"]) == (kind, command)]
        seconds = [row["seconds_to_restore"] for row in own]
        rows.append(
            {
                "section": "kills",
                "kind": kind,
                "command": command,
                "simulated": True,
                "kills": len(own),
                "restored": sum(row["restored"] for row in own),
                "median_s": median(seconds),
                "slowest_s": max(seconds),
            }
        )
    return rows


@contextmanager
def _stage(cache_dir: Path) -> Iterator[Stage]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        scenario = Scenario(gpus=("a100",) * GPUS)
        with open_scenario(scenario, folder, library=build_library(cache_dir)) as node:
            environment = environment_for(node, folder, before=os.environ) | {
                "WATTUNE_STORE": str(folder / "history.db"),
                "WATTUNE_CONFIG": str(folder / "none.toml"),
            }
            tables = tabulate(load_model("a100"), make_workload("resnet50"))
            for index in range(GPUS):
                node.play(index, tables, pid=NO_PROCESS)
            _limit_all(environment)
            yield Stage(node, environment, folder)


def _limit_all(environment: dict[str, str]) -> None:
    watts = f"{FOUND.power_limit_w:g}"
    subprocess.run(
        ["nvidia-smi", "-pl", watts], env=environment, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )


def _round(stage: Stage, kind: Kind, command: str, *, delay_s: float) -> Row:
    if not stage.is_restored():
        _limit_all(stage.environment)
    process, master = _start(stage, stage.command(command, kind), in_terminal=kind == "terminal")
    children: list[psutil.Process] = []
    try:
        _wait(lambda: bool(_children(process)) or command != "run", process)
        for child in _children(process):  # `run` tunes a program that computes on the GPU
            stage.node.join(_GPU, pid=child.pid)
        _wait(lambda: not stage.is_restored(), process)
        time.sleep(delay_s)
        children = _children(process)
        start_s = _kill(stage, kind, process, master, delay_s=delay_s)
        was_set = not stage.is_restored()
        process.wait()
        restored = _until(stage.is_restored)
        seconds = time.monotonic() - start_s
        left_entries = 0 if _until(lambda: not stage.journal.left() and not stage.journal.holders()) else 1
        left_processes = 0 if _until(lambda: not _watchdogs(stage)) else 1
    finally:
        _end(stage, process, master, children)
    return {
        "kind": kind,
        "command": command,
        "simulated": True,
        "restored": restored,
        "seconds_to_restore": seconds,
        "set_after_kill": was_set,
        "left_entries": left_entries,
        "left_processes": left_processes,
    }


def _start(stage: Stage, command: list[str], *, in_terminal: bool) -> tuple[subprocess.Popen[bytes], int | None]:
    """Start a command as the leader of a session; in a terminal, the other end of it is returned too."""
    plain = {"env": stage.environment, "cwd": stage.folder, "start_new_session": True}
    if not in_terminal:
        quiet = subprocess.DEVNULL
        return subprocess.Popen(command, stdin=quiet, stdout=quiet, stderr=quiet, **plain), None  # type: ignore[call-overload]
    master, slave = pty.openpty()
    try:
        # The first terminal that a leader of a session opens becomes its own.
        opening = ["sh", "-c", 'exec "$@" <"$0" >"$0" 2>"$0"', os.ttyname(slave), *command]
        return subprocess.Popen(opening, stdin=subprocess.DEVNULL, **plain), master  # type: ignore[call-overload]
    finally:
        os.close(slave)


def _kill(stage: Stage, kind: Kind, process: subprocess.Popen[bytes], master: int | None, *, delay_s: float) -> float:
    """Kill as the kind says, and return the time from which on the GPUs should be restored."""
    match kind:
        case "process" | "applying":
            start_s = time.monotonic()
            process.kill()
        case "group":
            start_s = _kill_group(process)
        case "stopped":
            os.killpg(process.pid, signal.SIGSTOP)
            time.sleep(0.01)
            start_s = _kill_group(process)
        case "terminal":
            start_s = time.monotonic()
            os.close(master or 0)
            _kill_group(process)
        case "restorer":
            start_s = _kill_restorer_too(stage, process, delay_s=delay_s / 4)
        case "watchdog":
            start_s = _kill_watchdog_too(stage, process)
    return start_s


def _kill_group(process: subprocess.Popen[bytes]) -> float:
    start_s = time.monotonic()
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    return start_s


def _kill_restorer_too(stage: Stage, process: subprocess.Popen[bytes], *, delay_s: float) -> float:
    watchdogs = _watchdogs(stage)
    for watchdog in watchdogs:
        watchdog.suspend()
    process.kill()
    process.wait()
    with _restorer(stage) as restorer:
        _until(lambda: bool(stage.journal.holders()) or restorer.poll() is not None)
        time.sleep(delay_s)
        restorer.kill()
    start_s = time.monotonic()
    for watchdog in watchdogs:
        watchdog.resume()
    return start_s


def _kill_watchdog_too(stage: Stage, process: subprocess.Popen[bytes]) -> float:
    for watchdog in _watchdogs(stage):
        watchdog.kill()
    process.kill()
    process.wait()
    start_s = time.monotonic()
    with _restorer(stage):
        return start_s


@contextmanager
def _restorer(stage: Stage) -> Iterator[subprocess.Popen[bytes]]:
    quiet = subprocess.DEVNULL
    with subprocess.Popen([*_WATTUNE, "restore"], env=stage.environment, stdout=quiet, stderr=quiet) as process:
        yield process


def _watchdogs(stage: Stage) -> list[psutil.Process]:
    """Return the watchdogs that watch over this node's journal."""
    found = []
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            line = process.cmdline()
            if stage.journal.folder in line and any("wattune.devices.watchdog" in word for word in line):
                found.append(process)
    return found


def _wait(condition: Callable[[], bool], process: subprocess.Popen[bytes]) -> None:
    if not _until(lambda: condition() or process.poll() is not None, limit_s=_START_LIMIT_S) or not condition():
        raise DeviceError(
            "a command that was to be killed has set no GPU", hint="run it by hand: wattune simulate -- COMMAND"
        )


def _until(condition: Callable[[], bool], *, limit_s: float = _GIVE_UP_S) -> bool:
    end_s = time.monotonic() + limit_s
    while not condition():
        if time.monotonic() >= end_s:
            return False
        time.sleep(_POLL_S)
    return True


def _children(process: subprocess.Popen[bytes]) -> list[psutil.Process]:
    try:
        return list(psutil.Process(process.pid).children(recursive=True))
    except psutil.NoSuchProcess:
        return []


def _end(
    stage: Stage, process: subprocess.Popen[bytes], master: int | None, children: Sequence[psutil.Process]
) -> None:
    _kill_group(process)
    process.wait()
    for child in children:
        with suppress(psutil.NoSuchProcess):
            child.kill()
        stage.node.leave(_GPU, pid=child.pid)
    if master is not None:
        with suppress(OSError):
            os.close(master)
