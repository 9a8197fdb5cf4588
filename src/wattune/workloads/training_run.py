"""Training as nested loops: micro-steps in a step, steps between evaluations, evaluations between checkpoints.

The body of a loop is repeated `times` times. One pass of the outermost loop, unrolled, is a workload that a simulated
GPU repeats like any other. Its power trace then has one period per level, which `periods` computes.
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
    """A wait for the host of varying length: lognormal, with this mean and this relative standard deviation."""

    name: str
    mean_s: float
    spread: float = 0.0

    def __post_init__(self) -> None:
        if not (self.mean_s > 0 and self.spread >= 0):
            raise ValueError(f"wait {self.name!r} needs a mean above 0 and a spread of 0 or more")

    def drawn(self, random: Random) -> Phase:
        """Draw a wait."""
        variance = log(1 + self.spread**2)
        factor = random.lognormvariate(-variance / 2, sqrt(variance)) if variance else 1.0
        return Phase(name=self.name, host_stall_s=self.mean_s * factor)

    @property
    def typical(self) -> Phase:
        """A wait of mean length."""
        return Phase(name=self.name, host_stall_s=self.mean_s)


@dataclass(frozen=True, slots=True)
class Loop:
    """A body that is repeated `times` times; the name is that of one pass."""

    name: str
    body: tuple[Phase | Wait | Loop, ...]
    times: int = 1

    def __post_init__(self) -> None:
        if not self.body or self.times < 1:
            raise ValueError(f"loop {self.name!r} needs a body and at least one pass")


@dataclass(frozen=True, slots=True)
class Period:
    """The period of a loop: the mean time of one pass, and the number of passes in the loop around it."""

    name: str
    period_s: float
    times: int


def unrolled(loop: Loop, *, seed: int | None) -> Iterator[Phase]:
    """Yield all phases of the loop in order, with waits drawn from the seed, or of mean length without one."""
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
    """Make a workload of which one iteration is the whole loop."""
    return Workload(name=loop.name, phases=tuple(unrolled(loop, seed=seed)))


def one_pass(loop: Loop, name: str) -> Workload:
    """Make a workload of one pass of the named loop, with waits of mean length."""
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
    """Count how often each phase runs, with waits of mean length."""
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
    """Compute the mean time of the loop from the time of each phase."""
    return sum(count * seconds(phase) for phase, count in phase_counts(loop).items())


def periods(loop: Loop, seconds: Callable[[Phase], float]) -> tuple[Period, ...]:
    """List the periods of the loop, the longest first: the whole, and each inner loop of several passes."""
    inner = [period for part in loop.body if isinstance(part, Loop) for period in _repeated(part, seconds)]
    return (Period(loop.name, total_s(loop, seconds), 1), *inner)


def _repeated(loop: Loop, seconds: Callable[[Phase], float]) -> Iterator[Period]:
    if loop.times > 1:
        yield Period(loop.name, total_s(loop, seconds) / loop.times, loop.times)
    for part in loop.body:
        if isinstance(part, Loop):
            yield from _repeated(part, seconds)


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """The loops around a network; counts are per pass of the next outer loop."""

    micro_steps: int = 1
    """Per step; the gradients of these batches are added up."""
    steps: int = 100
    """Per evaluation, or per checkpoint without evaluations."""
    loading: Wait | None = None
    """Before every micro-step."""
    evaluation_batches: int = 0
    evaluations: int = 1
    """Per checkpoint."""
    checkpoint: Wait | None = None
    """The GPU waits while weights are written to disk."""

    def __post_init__(self) -> None:
        if min(self.micro_steps, self.steps, self.evaluations) < 1 or self.evaluation_batches < 0:
            raise ValueError("a schedule has at least one micro-step, step and evaluation round")


def scheduled(
    name: str, schedule: Schedule, *, gradients: tuple[Phase, ...], update: Phase, evaluating: tuple[Phase, ...]
) -> Loop:
    """Make the loops of a schedule around the phases of a micro-step, the optimizer and an evaluated batch."""
    loading = (schedule.loading,) if schedule.loading else ()
    micro_steps = Loop("micro-step", (*loading, *gradients), schedule.micro_steps)
    rounds: tuple[Phase | Wait | Loop, ...] = (Loop("step", (micro_steps, update), schedule.steps),)
    if schedule.evaluation_batches:
        rounds = (*rounds, Loop("evaluated batch", (*loading, *evaluating), schedule.evaluation_batches))
    saving = (schedule.checkpoint,) if schedule.checkpoint else ()
    return Loop(name, (Loop("evaluation", rounds, schedule.evaluations), *saving))
