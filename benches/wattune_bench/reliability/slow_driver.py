"""A program beside a slow driver: how much longer it takes, how long it stalls, and the CPU time of the tuning.

Every case runs the same program, which does nothing but wait as one that a GPU keeps busy, on an emulated GPU. Calls of
the driver block (as a driver that waits for its firmware) or compute (as one that spins).
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from wattune.core.errors import WattuneError
from wattune_bench.result import Bench, Goal, Row, at_most, part

STEP_S = 0.01
STALL_MS = 50.0
"""Longest stall of a step that a slow driver may add to those of a busy machine."""
SHARE_PERCENT = 1.0
"""Share of one core that tuning may take."""

PROGRAM = """
import json, sys, time
seconds, file = float(sys.argv[1]), sys.argv[2]
def steps(after_each):
    longest_s, start_s = 0.0, time.monotonic()
    for _ in range(round(seconds / {step_s})):
        begun_s = time.monotonic()
        time.sleep({step_s})
        after_each()
        longest_s = max(longest_s, time.monotonic() - begun_s)
    open(file, "w").write(json.dumps({{"program_s": time.monotonic() - start_s, "longest_s": longest_s}}))
"""
ALONE = PROGRAM.format(step_s=STEP_S) + "steps(lambda: None)\n"
TUNED = PROGRAM.format(step_s=STEP_S) + (
    "import wattune\n"
    "with wattune.open_gpu('nvml:0') as gpu, wattune.tuned(gpu, slowdown=0.05) as tuning:\n"
    "    steps(tuning.step)\n"
)


@dataclass(frozen=True, slots=True)
class SlowDriver:
    """A driver whose calls take this long, blocking or computing."""

    call_ms: float
    blocking: bool = True

    @property
    def options(self) -> tuple[str, ...]:
        if not self.call_ms:
            return ()
        if self.blocking:
            return ("--fault", f"all:{self.call_ms:g}ms")
        return ("--call-latency-us", f"{1000 * self.call_ms:g}")


DRIVERS = (SlowDriver(0.0), SlowDriver(1.0, blocking=False), SlowDriver(300.0))
COMMANDS = ("measure", "run", "tuned")


def slow_driver_rows(
    *,
    seconds: float = 12.0,
    drivers: Sequence[SlowDriver] = DRIVERS,
    commands: Sequence[str] = COMMANDS,
    on_case: Callable[[str], None] = lambda _: None,
) -> tuple[Row, ...]:
    """Return a row for each driver and command: the program alone, under the command, and what the command took."""
    with tempfile.TemporaryDirectory(prefix="wattune-slow-") as name:
        folder = Path(name)
        alone = _outcome([sys.executable, "-c", ALONE], seconds, folder)
        rows = []
        for driver in drivers:
            for command in commands:
                on_case(f"{command} at {driver.call_ms:g} ms per call")
                rows.append(_row(driver, command, alone, _under(driver, command, seconds, folder)))
    return tuple(rows)


def slow_driver_goals(rows: Sequence[Row]) -> tuple[Goal, ...]:
    """Return the goals: a slow driver stalls no step of the program for longer than a fast one, and tuning is cheap."""
    fast = {row["command"]: float(row["stall_ms"]) for row in rows if not row["call_ms"]}
    stalls = [max(float(row["stall_ms"]) - fast.get(row["command"], 0.0), 0.0) for row in rows if row["call_ms"]]
    shares = [float(row["core_percent"]) for row in rows if row["core_percent"] is not None]
    return (
        at_most("longest stall of a step that a slow driver adds", max(stalls, default=None), STALL_MS, unit=" ms"),
        at_most("CPU share of tuning beside a slow driver", max(shares, default=None), SHARE_PERCENT, unit=" %"),
    )


def slow_driver_section(*, seconds: float = 12.0, on_case: Callable[[str], None] = lambda _: None) -> Bench:
    """Return the section of the bench."""
    rows = slow_driver_rows(seconds=seconds, on_case=on_case)
    note = (
        "slow driver: command_s also has the start of wattune and the calls that open a GPU; the program of `run` "
        "does not wait for these"
    )
    return part(rows, slow_driver_goals(rows), (note,))


def _under(driver: SlowDriver, command: str, seconds: float, folder: Path) -> dict[str, Any]:
    program = [sys.executable, "-c", TUNED if command == "tuned" else ALONE]
    ours = [] if command == "tuned" else [sys.executable, "-m", "wattune", command, "--no-store", "--json", "--"]
    start = [sys.executable, "-m", "wattune", "simulate", *driver.options, "--"]
    return _outcome([*start, *ours, *program], seconds, folder)


def _outcome(command: list[str], seconds: float, folder: Path) -> dict[str, Any]:
    file, begun_s = folder / "outcome.json", time.monotonic()
    file.unlink(missing_ok=True)
    done = subprocess.run([*command, str(seconds), str(file)], capture_output=True, text=True, check=False)
    if done.returncode or not file.exists():
        raise WattuneError(f"the program beside a slow driver failed: {done.stderr.strip()[-200:]}")
    share = json.loads(done.stdout).get("control_core_percent") if done.stdout.startswith("{") else None
    return {**json.loads(file.read_text()), "command_s": time.monotonic() - begun_s, "core_percent": share}


def _row(driver: SlowDriver, command: str, alone: dict[str, Any], under: dict[str, Any]) -> Row:
    return {
        "section": "slow driver",
        "simulated": True,
        "call_ms": driver.call_ms,
        "blocking": driver.blocking,
        "command": command,
        "alone_s": alone["program_s"],
        "program_s": under["program_s"],
        "slowdown_percent": 100 * (under["program_s"] / alone["program_s"] - 1),
        "stall_ms": max(1000 * (under["longest_s"] - STEP_S), 0.0),
        "command_s": under["command_s"],
        "core_percent": under["core_percent"],
    }
