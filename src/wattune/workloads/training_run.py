"""Training as nested loops: micro-steps in a step, steps between evaluations, evaluations between checkpoints.

A loop's body is played `times` times. One pass of the outermost loop, unrolled, is a workload that a simulated GPU
plays over and over like any other; its power trace then has one period per level, and this file says which.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import log, sqrt
from random import Random

from wattune.core.workload import Phase, Workload


@dataclass(frozen=True, slots=True)
class Wait:
    """A wait for the host whose length varies: lognormal, with this mean and this standard deviation over it."""

    name: str
    mean_s: float
    spread: float = 0.0

    def __post_init__(self) -> None:
        if not (self.mean_s > 0 and self.spread >= 0):
            raise ValueError(f"wait {self.name!r} has a mean above 0 and a spread of 0 or more")

    def drawn(self, random: Random) -> Phase:
        """One such wait."""
        variance = log(1 + self.spread**2)
        factor = random.lognormvariate(-variance / 2, sqrt(variance)) if variance else 1.0
        return Phase(name=self.name, host_stall_s=self.mean_s * factor)

    @property
    def typical(self) -> Phase:
        """A wait of mean length."""
        return Phase(name=self.name, host_stall_s=self.mean_s)


@dataclass(frozen=True, slots=True)
class Loop:
    """A body that is played `times` times; the name is that of one pass."""

    name: str
    body: tuple[Phase | Wait | Loop, ...]
    times: int = 1

    def __post_init__(self) -> None:
        if not self.body or self.times < 1:
            raise ValueError(f"loop {self.name!r} has a body and is played at least once")


@dataclass(frozen=True, slots=True)
class Period:
    """What repeats: one pass of a loop, how long it takes on average, and how often in the pass around it."""

    name: str
    period_s: float
    times: int


def unrolled(loop: Loop, *, seed: int | None) -> Iterator[Phase]:
    """All phases of the loop in their order, with the waits drawn from the seed, or of mean length where it is None."""
    yield from _unrolled(loop, None if seed is None else Random(seed))


def _unrolled(loop: Loop, random: Random | None) -> Iterator[Phase]:
    for _ in range(loop.times):
        for part in loop.body:
            match part:
                case Loop():
                    yield from _unrolled(part, random)
                case Wait():
                    yield part.typical if random is None else part.drawn(random)
                case Phase():
                    yield part


def run_workload(loop: Loop, *, seed: int) -> Workload:
    """All of the loop as one iteration of a workload."""
    return Workload(name=loop.name, phases=tuple(unrolled(loop, seed=seed)))


def one_pass(loop: Loop, name: str) -> Workload:
    """One pass of the loop of that name as a workload, each wait at its mean length."""
    found = _named(loop, name)
    if found is None:
        raise ValueError(f"there is no loop {name!r} in {loop.name!r}")
    inner = Loop(found.name, found.body)
    return Workload(name=f"{loop.name} {name}", phases=tuple(unrolled(inner, seed=None)))


def _named(loop: Loop, name: str) -> Loop | None:
    if loop.name == name:
        return loop
    inner = (_named(part, name) for part in loop.body if isinstance(part, Loop))
    return next((found for found in inner if found is not None), None)


def phase_counts(loop: Loop) -> dict[Phase, int]:
    """How often each phase is played, each wait taken at its mean length."""
    counts: Counter[Phase] = Counter()
    for part in loop.body:
        match part:
            case Loop():
                counts.update({phase: loop.times * count for phase, count in phase_counts(part).items()})
            case Wait():
                counts[part.typical] += loop.times
            case Phase():
                counts[part] += loop.times
    return dict(counts)


def total_s(loop: Loop, seconds: Callable[[Phase], float]) -> float:
    """How long the loop takes on average, from how long a phase does at some clock."""
    return sum(count * seconds(phase) for phase, count in phase_counts(loop).items())


def periods(loop: Loop, seconds: Callable[[Phase], float]) -> tuple[Period, ...]:
    """What repeats in the loop, the longest first: each loop of it that is played more than once, and the whole."""
    inner = [period for part in loop.body if isinstance(part, Loop) for period in _repeated(part, seconds)]
    return (Period(loop.name, total_s(loop, seconds), 1), *inner)


def _repeated(loop: Loop, seconds: Callable[[Phase], float]) -> Iterator[Period]:
    if loop.times > 1:
        yield Period(loop.name, total_s(loop, seconds) / loop.times, loop.times)
    for part in loop.body:
        if isinstance(part, Loop):
            yield from _repeated(part, seconds)
