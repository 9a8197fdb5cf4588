"""Training as nested loops: micro-steps in a step, steps between evaluations, evaluations between checkpoints.

A loop's body is played `times` times. One pass of the outermost loop, unrolled, is a workload that a simulated GPU
plays over and over like any other; its power trace then has one period per level, and this file says which.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from math import log, sqrt
from random import Random

from wattune.core.workload import Phase, Pipe, Workload
from wattune.workloads.operation import (
    SGD,
    NetworkOp,
    Optimizer,
    gradient_phases,
    inference_phases,
    merged,
    update_phase,
)


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


# Two stretches per pass keep a run of some hundred micro-steps at a few thousand phases.
_INTERVALS = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """The loops around a network. Counts are per pass of the next outer loop."""

    micro_steps: int = 1
    """Per step; gradients of so many batches are added up."""
    steps: int = 100
    """Per evaluation, or per checkpoint where nothing is evaluated."""
    loading: Wait | None = None
    """Before every micro-step."""
    evaluation_batches: int = 0
    evaluations: int = 1
    """Per checkpoint."""
    checkpoint: Wait | None = None
    """While the weights are written to disk the GPU waits."""

    def __post_init__(self) -> None:
        if min(self.micro_steps, self.steps, self.evaluations) < 1 or self.evaluation_batches < 0:
            raise ValueError("a schedule has at least one micro-step, step and evaluation round")


def training_run(
    name: str,
    operations: tuple[NetworkOp, ...],
    schedule: Schedule,
    *,
    batch_size: int,
    pipe: Pipe,
    optimizer: Optimizer = SGD,
) -> Loop:
    """The network trained to the schedule, from one checkpoint to the next."""
    gradients = merged(gradient_phases(operations, batch_size=batch_size, pipe=pipe), _INTERVALS)
    forward = merged(inference_phases(operations, batch_size=batch_size, pipe=pipe), _INTERVALS)
    evaluating = tuple(_renamed(phase, "evaluation") for phase in forward)
    return scheduled(
        name, schedule, gradients=gradients, update=update_phase(operations, optimizer), evaluating=evaluating
    )


def scheduled(
    name: str, schedule: Schedule, *, gradients: tuple[Phase, ...], update: Phase, evaluating: tuple[Phase, ...]
) -> Loop:
    """The loops of a schedule around the phases of a micro-step, of the optimizer and of an evaluated batch."""
    loading = (schedule.loading,) if schedule.loading else ()
    micro_steps = Loop("micro-step", (*loading, *gradients), schedule.micro_steps)
    rounds: tuple[Phase | Wait | Loop, ...] = (Loop("step", (micro_steps, update), schedule.steps),)
    if schedule.evaluation_batches:
        rounds = (*rounds, Loop("evaluated batch", (*loading, *evaluating), schedule.evaluation_batches))
    saving = (schedule.checkpoint,) if schedule.checkpoint else ()
    return Loop(name, (Loop("evaluation", rounds, schedule.evaluations), *saving))


def _renamed(phase: Phase, first: str) -> Phase:
    """The phase as part of another pass."""
    return replace(phase, name=f"{first}/{phase.name.partition('/')[2]}")
