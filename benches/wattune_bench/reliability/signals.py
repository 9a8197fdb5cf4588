"""Signals to every command that runs a program: how it ends, the fate of the program, and whether the GPU is restored.

Each case starts a real `wattune` on an emulated node of one GPU, waits until the program runs and, where the command
sets the GPU, until it is set, and sends a signal to wattune alone.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from wattune.core.errors import DeviceError
from wattune.core.setting import Setting
from wattune.emulator.emulated_gpu import EmulatedGpu
from wattune.emulator.library import build_library
from wattune.emulator.node import NODE_VARIABLE, Node
from wattune.physics.catalog import load_model
from wattune.physics.spend import tabulate
from wattune.workloads.catalog import make_workload
from wattune_bench.result import Bench, at_most, part

GPU = "a100"
GRACE_S = 1.0
SET_LIMIT_S = 60.0
"""Longest time until a command has set the GPU; then the signal is sent anyway, and the row says so."""
PATIENCE_S = 60.0
MOST_END_S = 5.0
"""Longest time to end, beyond the grace period of a program that does not listen."""

_PROGRAM = """
import os, signal, sys, time
from pathlib import Path
folder, how = Path(sys.argv[1]), sys.argv[2]
heard = lambda number, frame: (folder / ("heard-" + str(number))).touch()
signal.signal(signal.SIGUSR1, heard)
signal.signal(signal.SIGCONT, heard)
if how == "deaf":
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)
if how == "tidy":
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT):
        signal.signal(number, lambda number, frame: sys.exit(0))
end_s = time.monotonic() + (600.0 if (folder / "pid").exists() else float(sys.argv[3]))
(folder / "new").write_text(str(os.getpid()))
os.replace(folder / "new", folder / "pid")
while time.monotonic() < end_s:
    print("step", flush=True)
    time.sleep(0.02)
"""


@dataclass(frozen=True, slots=True)
class Command:
    """A command that runs a program."""

    name: str
    arguments: tuple[str, ...]
    sets_gpu: bool
    run_s: float = 600.0
    """Time that the program runs when it is started first; a sweep has to come to its second setting."""
    starts_program: bool = True
    passes_code: bool = True
    """False if a program that ends in good order after a signal still gives 128 + n."""


_JOB = ("--batch-sizes", "16", "--target", "1", "--metric-pattern", "acc ([0-9.]+)", "--step-pattern", "step")
COMMANDS = (
    Command("measure", ("measure", "--no-store"), sets_gpu=False),
    Command("simulate", ("simulate",), sets_gpu=False),
    Command("run", ("run", "--no-store", "--step-pattern", "step"), sets_gpu=True),
    Command("attach", ("attach", "--no-store", "--device", "nvml:0"), sets_gpu=True, starts_program=False),
    Command("sweep", ("sweep", "--points", "3"), sets_gpu=True, run_s=0.3, passes_code=False),
    Command("job run", ("job", "run", "j", *_JOB), sets_gpu=True, passes_code=False),
    Command("switch-latency", ("layers", "switch-latency", "--no-store"), sets_gpu=True, passes_code=False),
)
STOPPING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)


@dataclass(frozen=True, slots=True)
class SignalCase:
    """A signal to a command whose program takes it in some way."""

    command: Command
    signal: signal.Signals
    program: str = "plain"
    """plain: the defaults of a Python program; deaf: ignores SIGTERM and SIGINT; tidy: ends with 0."""
    nohup: bool = False

    @property
    def goes_on(self) -> bool:
        """True if neither wattune nor the program should end."""
        return self.nohup or self.signal in (signal.SIGUSR1, signal.SIGTSTP)

    @property
    def exit_code(self) -> int:
        """The exit code that wattune should have in the end, by this signal or by the SIGTERM that follows."""
        number = signal.SIGTERM if self.goes_on else self.signal
        if not self.command.starts_program:
            return 0 if number == signal.SIGINT else 128 + number
        if self.program == "tidy" and self.command.passes_code:
            return 0
        return 128 + number


def all_cases(commands: Iterable[Command] = COMMANDS) -> Iterator[SignalCase]:
    """List every command with every signal that applies to it."""
    for command in commands:
        yield from (
            SignalCase(command, number) for number in STOPPING if command.starts_program or number != signal.SIGQUIT
        )
        yield SignalCase(command, signal.SIGHUP, nohup=True)
        if command.starts_program:
            yield SignalCase(command, signal.SIGTERM, "deaf")
            yield SignalCase(command, signal.SIGTERM, "tidy")
            yield SignalCase(command, signal.SIGUSR1)
            yield SignalCase(command, signal.SIGTSTP)


def signal_rows(
    *, cache_dir: Path, cases: Iterable[SignalCase] | None = None, on_case: Callable[[str], None] | None = None
) -> Bench:
    """Play the cases, by default all, and return a row for each."""
    library = build_library(cache_dir)
    rows = []
    for case in all_cases() if cases is None else cases:
        if on_case is not None:
            on_case(f"{case.command.name} {case.signal.name} {case.program}")
        with tempfile.TemporaryDirectory(prefix="wattune-signals-") as folder:
            rows.append(_Played(case, Path(folder), library).row())
    wrong = sum(not row["as_expected"] for row in rows)
    not_restored = sum(row["restored"] is False for row in rows)
    late_s = max((row["end_s"] for row in rows if row["end_s"] is not None), default=None)
    goals = (
        at_most("signals that a command takes otherwise than expected", wrong, 0),
        at_most("GPUs left set after a signal", not_restored, 0),
        at_most("longest time to end after a signal", late_s, MOST_END_S + GRACE_S, unit=" s"),
    )
    return part(rows, goals, (f"Signals: real processes on an emulated {GPU}; the grace period is {GRACE_S:g} s.",))


@dataclass
class _Played:
    """One case while it is played."""

    case: SignalCase
    folder: Path
    library: Path
    _notes: list[str] = field(default_factory=list)

    def row(self) -> Mapping[str, Any]:
        model = load_model(GPU)
        with Node.create(self.folder / "node", [EmulatedGpu.of(model, 0)], library=self.library) as node:
            found = node.setting(0)
            with self._started(node) as (process, pid):
                was_set = self._await_set(node, process, found)
                if self.case.command.run_s < SET_LIMIT_S:
                    pid = self._next_pid(pid, process)
                end_s = self._signal(process, pid)
                code = None if end_s is None else process.returncode
                alive = _runs(pid)
                if not self.case.command.starts_program:
                    self._expect(alive, "the program has ended")
                else:
                    self._expect(not alive, "the program runs on")
            restored = node.setting(0) == found
        # A signal whose default was left alone ends the process itself, which a shell shows as 128 + n.
        shown = None if code is None else code if code >= 0 else 128 - code
        self._expect(shown == self.case.exit_code, f"exit code {shown} instead of {self.case.exit_code}")
        self._expect(restored, "the GPU is left set")
        return {
            "section": "signals",
            "command": self.case.command.name,
            "signal": self.case.signal.name + (" under nohup" if self.case.nohup else ""),
            "program": self.case.program,
            "exit_code": shown,
            "end_s": end_s,
            "gpu_was_set": was_set,
            "restored": restored,
            "as_expected": not self._notes,
            "note": "; ".join(self._notes) or None,
            "simulated": True,
        }

    def _expect(self, holds: bool, note: str) -> None:
        if not holds:
            self._notes.append(note)

    def _signal(self, process: subprocess.Popen[bytes], pid: int) -> float | None:
        """Send the signal, and SIGTERM where it should not end anything; return the seconds that ending took."""
        os.kill(process.pid, self.case.signal)
        if self.case.signal == signal.SIGTSTP:
            self._expect(_within(lambda: _state(process.pid) == _state(pid) == "T"), "not both are stopped")
            os.kill(process.pid, signal.SIGCONT)
            self._expect(_within(lambda: "T" not in (_state(process.pid), _state(pid))), "not both are continued")
        if self.case.signal == signal.SIGUSR1:
            heard = self.folder / f"heard-{signal.SIGUSR1.value}"
            self._expect(_within(heard.exists), "the program did not get the signal")
        if self.case.goes_on:
            time.sleep(0.2)
            self._expect(process.poll() is None and _runs(pid), "something has ended")
            if process.poll() is None:
                os.kill(process.pid, signal.SIGTERM)
        start_s = time.monotonic()
        try:
            process.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            self._notes.append("wattune does not end")
            return None
        return time.monotonic() - start_s

    def _await_set(self, node: Node, process: subprocess.Popen[bytes], found: Setting) -> bool | None:
        if not self.case.command.sets_gpu:
            return None
        return _within(lambda: node.setting(0) != found or process.poll() is not None, SET_LIMIT_S)

    @contextmanager
    def _started(self, node: Node) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
        """Start wattune and its program, or the program first; kill both in the end."""
        command, program = self.case.command, self._program()
        first = None if command.starts_program else subprocess.Popen(program, stdout=subprocess.DEVNULL)
        line = (
            *command.arguments,
            *(("--grace", str(GRACE_S), "--", *program) if first is None else (str(first.pid),)),
        )
        tables = tabulate(load_model(GPU), make_workload("resnet50"))
        if first is not None:
            node.play(0, tables, pid=first.pid)
        process = self._wattune(line, node)
        try:
            pid = self._next_pid(None, process) if first is None else first.pid
            if first is None:
                node.play(0, tables, pid=pid)
            yield process, pid
        finally:
            process.kill()
            process.wait()
            _kill_all(self.folder, first)

    def _program(self) -> tuple[str, ...]:
        run_s = self.case.command.run_s
        return (sys.executable, "-c", _PROGRAM, str(self.folder), self.case.program, str(run_s))

    def _wattune(self, line: Sequence[str], node: Node) -> subprocess.Popen[bytes]:
        own = {f"WATTUNE_{name}": str(self.folder / name.lower()) for name in ("STORE", "STATE", "CONFIG")}
        environment = {
            **os.environ,
            **own,
            NODE_VARIABLE: str(node.path),
            "LD_LIBRARY_PATH": str(node.library.parent),
            "WATTUNE_DEVICE": "nvml:0",
            "WATTUNE_CACHE": str(node.library.parents[1]),
        }
        ignored = (signal.SIGHUP,) if self.case.nohup else ()

        def dispose() -> None:
            for number in STOPPING:
                signal.signal(number, signal.SIG_IGN if number in ignored else signal.SIG_DFL)

        errors = (self.folder / "stderr").open("wb")
        with errors:
            return subprocess.Popen(
                (sys.executable, "-m", "wattune", *line),
                env=environment,
                stdout=subprocess.DEVNULL,
                stderr=errors,
                preexec_fn=dispose,
                process_group=0,  # not of a terminal, and in this session, so that it can be stopped
            )

    def _next_pid(self, before: int | None, process: subprocess.Popen[bytes]) -> int:
        """Return the process id of the program once it is started, or once more."""
        file = self.folder / "pid"
        if not _within(lambda: file.exists() and file.read_text(encoding="ascii") != str(before), PATIENCE_S, process):
            said = (self.folder / "stderr").read_text(encoding="utf-8", errors="replace").strip()
            raise DeviceError(
                f"{self.case.command.name} did not start its program: {said[-200:]}", hint="try it by hand"
            )
        return int(file.read_text(encoding="ascii"))


def _within(
    holds: Callable[[], bool], limit_s: float = PATIENCE_S, process: subprocess.Popen[bytes] | None = None
) -> bool:
    """Wait until something holds, for a time at most, or until the process has ended; return whether it holds."""
    end_s = time.monotonic() + limit_s
    while not holds():
        if time.monotonic() > end_s or (process is not None and process.poll() is not None):
            return holds()
        time.sleep(0.01)
    return True


def _state(pid: int) -> str | None:
    """Return the letter of a process's state; None where there is no such process."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0]
    except OSError:
        return None


def _runs(pid: int) -> bool:
    return _state(pid) not in (None, "Z", "X")


def _kill_all(folder: Path, first: subprocess.Popen[bytes] | None) -> None:
    """Kill what is left of the program, which names its folder on its command line."""
    if first is not None:
        first.kill()
        first.wait()
    import psutil

    for process in psutil.process_iter():
        try:
            if str(folder) in process.cmdline():
                process.kill()
        except psutil.Error:
            continue
