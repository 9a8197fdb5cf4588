"""`wattune bench reliability`: all its sections, in one outcome. Each section has a file of its own.

kills       processes that set GPUs are killed in every way; how long until the GPUs are restored
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from wattune.benchmarks.reliability.kills import COMMANDS, KILLS_A_COMMAND, KillBench, kills_part
from wattune.benchmarks.result import Bench, check_sections, joined, part

OnStep = Callable[[str, int, int], None]


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


SECTIONS: dict[str, Callable[[ReliabilityBench], Bench]] = {"kills": _kills}


def bench_reliability(bench: ReliabilityBench, *, sections: tuple[str, ...] = ()) -> Bench:
    """Run the sections named, or all of them."""
    check_sections(sections, tuple(SECTIONS))
    found = [part()]
    for section in sections or SECTIONS:
        bench.on_step(section, 0, 1)
        found.append(SECTIONS[section](bench))
    return joined("reliability", found)
