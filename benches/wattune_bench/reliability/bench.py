"""`wattune bench reliability`: all its sections, in one outcome. Each section has a file of its own.

kills       processes that set GPUs are killed in every way; how long until the GPUs are restored
signals     every command that runs a program, with every signal
store       outages of the store, and how long a program waits for it
writers     concurrent writers of the store, some of them killed
driver      programs beside a driver whose calls take long
inputs      every parser of outside input, fed with mutated examples
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from pathlib import Path

from wattune_bench.reliability.inputs import input_rows
from wattune_bench.reliability.kills import COMMANDS, KILLS_A_COMMAND, KillBench, kills_part
from wattune_bench.reliability.signals import all_cases, signal_rows
from wattune_bench.reliability.slow_driver import slow_driver_section
from wattune_bench.reliability.store_outages import store_part
from wattune_bench.reliability.writers import writers_part
from wattune_bench.result import Bench, check_sections, joined, part

OnStep = Callable[[str, int, int], None]
STORE_CASES = 25
"""Five commands in five states of the store."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReliabilityBench:
    """What the sections need."""

    cache_dir: Path
    """Where the emulated library is compiled."""
    rounds: int
    """Kills, and whatever else a section repeats."""
    seed: int
    on_step: OnStep


def _kills(bench: ReliabilityBench) -> Bench:
    """Most kills hit a program that uses the library, since commands take long to start; some hit each command."""
    other = [name for name in COMMANDS if name != "library"]
    plans = [KillBench(bench.rounds, seed=bench.seed)]
    plans += [KillBench(KILLS_A_COMMAND * len(other), commands=other, seed=bench.seed)] if bench.rounds > 100 else []
    return kills_part(
        plans,
        cache_dir=bench.cache_dir,
        on_round=lambda done: bench.on_step("kills", done, sum(plan.rounds for plan in plans)),
    )


def _signals(bench: ReliabilityBench) -> Bench:
    cases, counted = list(all_cases()), count(1)
    return signal_rows(
        cache_dir=bench.cache_dir,
        cases=cases,
        on_case=lambda name: bench.on_step(f"signals: {name}", next(counted), len(cases)),
    )


def _inputs(bench: ReliabilityBench) -> Bench:
    return input_rows(seed=bench.seed, on_parser=lambda name: bench.on_step(f"inputs: {name}", 0, 1))


SECTIONS: dict[str, Callable[[ReliabilityBench], Bench]] = {
    "kills": _kills,
    "signals": _signals,
    "store": lambda bench: store_part(on_case=lambda done: bench.on_step("store", done, STORE_CASES)),
    "writers": lambda bench: writers_part(on_case=lambda done: bench.on_step("writers", done, 2)),
    "driver": lambda bench: slow_driver_section(on_case=lambda name: bench.on_step(f"driver: {name}", 0, 1)),
    "inputs": _inputs,
}


def bench_reliability(bench: ReliabilityBench, *, sections: tuple[str, ...] = ()) -> Bench:
    """Run the sections named, or all of them."""
    check_sections(sections, tuple(SECTIONS))
    found = [part()]
    for section in sections or SECTIONS:
        bench.on_step(section, 0, 1)
        found.append(SECTIONS[section](bench))
    return joined("reliability", found)
