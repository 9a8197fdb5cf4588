"""Simulated traces whose truth is known: loads of every kind, and imitations of logs that people record.

Public logs show what a plain step does not: a profile of many layers that hardly differ, a loader that is late now and
then, an evaluation after every epoch, a start with work of its own, and polls of two lengths.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from math import exp, log

import numpy as np
from numpy.random import Generator

from wattune.physics.catalog import catalog_names, load_model
from wattune.signals.period import CycleKind, Verdict
from wattune.signals.samples import Floats, PowerSamples
from wattune_bench.period.loads import Load, LoadPlan, Sensing, chance, polled, steady, training, wandering


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class TraceCase:
    """A trace, its truth and its origin."""

    file: str
    kind: str
    samples: PowerSamples
    verdict: Verdict
    periods_s: Mapping[str, float] = field(default_factory=dict)
    """Periods by level that the sensor can follow."""
    spans_s: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    """Bounds of periods that are not known exactly."""
    level: CycleKind | None = None
    """What the answer has to be called; None where that does not count."""
    others: tuple[PowerSamples, ...] = ()
    """The other GPUs of the same log."""
    gpu: str | None = None
    seed: int | None = None
    simulated: bool = True


# A period is log-uniform between what the sensor just shows and the slowest step that is common.
_SLOWEST_S = 6.0
_LEAST_S = 0.08
# Refreshes per period from which a sensor follows it; two would be the limit.
_FOLLOWED = 3.0


def simulated_cases(*, seed: int) -> Iterator[TraceCase]:
    """Make one trace of every kind for each GPU of the catalogue."""
    for number, gpu in enumerate(catalog_names()):
        for kind, make in KINDS.items():
            random = np.random.default_rng((seed, number, len(kind), sum(map(ord, kind))))
            yield replace(make(gpu, random), file=f"simulated/{kind}/{gpu}/{seed}", kind=kind, gpu=gpu, seed=seed)


def _sensing(gpu: str, random: Generator) -> Sensing:
    sensing = Sensing.of(load_model(gpu), poll_s=1.0)
    polls_s = (0.01, 0.02, 0.05, 0.1) if sensing.refresh_s > 0.05 else (0.005, 0.01, 0.02)
    return replace(sensing, poll_s=float(random.choice(polls_s)))


def _step_s(sensing: Sensing, random: Generator, *, parts: int = 1) -> float:
    """Draw the length of a step whose parts the sensor can follow."""
    least_s = parts * max(_FOLLOWED * max(sensing.refresh_s, sensing.window_s, sensing.poll_s), _LEAST_S)
    return exp(random.uniform(log(least_s), log(max(_SLOWEST_S, 4 * least_s))))


def _case(load: Load, sensing: Sensing, seconds: float, random: Generator, *, verdict: Verdict) -> TraceCase:
    seen = {name: period_s for name, period_s in load.periods_s.items() if period_s >= sensing.finest_s}
    samples = polled(load, sensing, seconds, random=random)
    return TraceCase(file="", kind="", samples=samples, verdict=verdict, periods_s=seen)


def _trained(plan: LoadPlan, sensing: Sensing, seconds: float, random: Generator) -> TraceCase:
    return _case(training(plan, seconds, random=random), sensing, seconds, random, verdict=Verdict.PERIODIC)


def _steps(
    gpu: str, random: Generator, *, jitter: float = 0.003, drift: float = 0.0, missing: float = 0.0
) -> TraceCase:
    sensing = replace(_sensing(gpu, random), drift=drift, missing=missing)
    plan = LoadPlan(step_s=_step_s(sensing, random), jitter=jitter)
    return _trained(plan, sensing, max(30.0, float(random.uniform(12, 40)) * plan.step_s), random)


def _noisy(gpu: str, random: Generator) -> TraceCase:
    """Add noise of half the swing, as of a second program on the board."""
    sensing = _sensing(gpu, random)
    plan = LoadPlan(step_s=_step_s(sensing, random))
    seconds = max(30.0, float(random.uniform(20, 40)) * plan.step_s)
    load = training(plan, seconds, random=random)
    sensing = replace(sensing, noise_w=sensing.noise_w + 0.5 * load.swing_w)
    return _case(load, sensing, seconds, random, verdict=Verdict.PERIODIC)


def _starting(gpu: str, random: Generator) -> TraceCase:
    sensing = _sensing(gpu, random)
    plan = LoadPlan(step_s=_step_s(sensing, random))
    idle_s, seconds = float(random.uniform(2, 10)), max(30.0, float(random.uniform(12, 40)) * plan.step_s)
    load = training(plan, seconds, random=random).after(idle_s)
    return _case(load, sensing, seconds + idle_s, random, verdict=Verdict.PERIODIC)


def _accumulating(gpu: str, random: Generator) -> TraceCase:
    sensing = _sensing(gpu, random)
    parts = int(random.choice((2, 4, 8)))
    plan = LoadPlan(step_s=_step_s(sensing, random, parts=parts), parts=parts)
    return _trained(plan, sensing, max(60.0, 20 * plan.step_s), random)


def _saving(gpu: str, random: Generator, *, parts: tuple[int, ...] = (1,)) -> TraceCase:
    sensing = _sensing(gpu, random)
    chosen = int(random.choice(parts))
    step_s = min(_step_s(sensing, random, parts=chosen), 4.0)
    steps, checkpoint_s = int(random.integers(15, 50)), float(random.uniform(0.5, 3))
    plan = LoadPlan(step_s=step_s, parts=chosen, steps=steps, checkpoint_s=checkpoint_s)
    return _trained(plan, sensing, max(60.0, 4.5 * (steps * step_s + checkpoint_s)), random)


def _aperiodic(gpu: str, random: Generator) -> TraceCase:
    sensing = _sensing(gpu, random)
    typical_s = max(8 * max(sensing.refresh_s, sensing.poll_s), float(random.uniform(0.3, 1.5)))
    load = chance(90.0, typical_s=typical_s, random=random)
    return _case(load, sensing, 90.0, random, verdict=Verdict.APERIODIC)


def _wandering(gpu: str, random: Generator) -> TraceCase:
    load = wandering(90.0, memory_s=float(random.uniform(0.7, 3.0)), random=random)
    return _case(load, _sensing(gpu, random), 90.0, random, verdict=Verdict.APERIODIC)


def _steady(gpu: str, random: Generator) -> TraceCase:
    return _case(steady(60.0), _sensing(gpu, random), 60.0, random, verdict=Verdict.NOT_OBSERVABLE)


def _fast(gpu: str, random: Generator, *, jitter: float) -> TraceCase:
    """Make steps too short for the sensor."""
    sensing = _sensing(gpu, random)
    plan = LoadPlan(step_s=float(random.uniform(0.15, 0.95)) * sensing.finest_s, jitter=jitter)
    load = training(plan, 60.0, random=random)
    return _case(load, sensing, 60.0, random, verdict=Verdict.NOT_OBSERVABLE)


KINDS: Mapping[str, Callable[[str, Generator], TraceCase]] = {
    "steps": _steps,
    "noise": _noisy,
    "drift": lambda gpu, random: _steps(gpu, random, drift=0.15),
    "start": _starting,
    "missing samples": lambda gpu, random: _steps(gpu, random, missing=0.3),
    "uneven steps": lambda gpu, random: _steps(gpu, random, jitter=0.04),
    "accumulation": _accumulating,
    "checkpoints": _saving,
    "accumulation and checkpoints": lambda gpu, random: _saving(gpu, random, parts=(2, 4)),
    "chance": _aperiodic,
    "wandering": _wandering,
    "steady": _steady,
    "too fast": lambda gpu, random: _fast(gpu, random, jitter=0.0005),
    "too fast and uneven": lambda gpu, random: _fast(gpu, random, jitter=0.03),
}


LOG = "log of"
"""Prefix of the kinds that imitate logs."""
_OF_EACH = 8
_IDLE_W = 60.0
# Two lengths of polls in turn, as of a program that sleeps and then reads several values.
_POLLS_S = ((0.0105, 0.0146), (0.0105, 0.0196), (0.0196, 0.0196))


@dataclass(slots=True)
class _LogPlayer:
    """A program under way: intervals of duration, power, busy and memory busy."""

    random: Generator
    pieces: list[Floats] = field(default_factory=list)
    time_s: float = 0.0
    steps_s: list[float] = field(default_factory=list)

    def play(self, profile: Floats, *, interval: float = 1.0) -> None:
        """Play one pass of a profile, longer by a factor."""
        piece = profile.copy()
        piece[0] *= interval
        self.pieces.append(piece)
        self.time_s += float(piece[0].sum())

    def wait(self, seconds: float, *, power_w: float = _IDLE_W, busy: float = 0.0) -> None:
        """Let time pass without kernels, or with a few."""
        self.play(np.array([[seconds], [power_w], [busy], [busy / 2]]))

    def load(self, periods_s: Mapping[str, float]) -> Load:
        return Load.of(self.pieces, periods_s)


def log_cases(*, seed: int) -> Iterator[TraceCase]:
    """Make some imitations of every kind of log."""
    for kind, make in LOGS.items():
        for number in range(_OF_EACH):
            random = np.random.default_rng((seed, number, sum(map(ord, kind))))
            yield replace(make(random), file=f"simulated/{kind}/{number}/{seed}", kind=kind, seed=seed)


def _layers(random: Generator, length_s: float, *, layers: int, swing: float) -> Floats:
    """Draw the layers of one pass, whose power differs by some share, and a dip at the end."""
    mean_w = float(random.uniform(110, 220))
    duration_s = random.dirichlet(np.full(layers, 2.0)) * 0.96 * length_s
    power_w = mean_w * (1 + swing * random.standard_normal(layers))
    mem_busy = np.clip(random.uniform(0.2, 0.6) + 0.15 * random.standard_normal(layers), 0.02, 1.0)
    dip = np.array([[0.04 * length_s], [0.75 * mean_w], [random.uniform(0.3, 1.0)], [0.05]])
    return np.concatenate((np.array([duration_s, power_w, np.ones(layers), mem_busy]), dip), axis=1)


def _network(random: Generator) -> TraceCase:
    """Imitate a convolutional network at some clock, with a loader, epochs and a start of its own."""
    step_s = exp(random.uniform(log(0.26), log(6.8)))
    layers = int(random.integers(16, 60))
    step = _layers(random, step_s, layers=layers, swing=float(random.uniform(0.04, 0.2)))
    jitter, late = float(random.uniform(0.002, 0.02)), float(random.uniform(0.0, 0.03))
    seconds = max(60.0, float(random.uniform(18, 45)) * step_s)
    epoch_s, check = float(random.uniform(25, 90)), step[:, : layers // 3]
    playing = _LogPlayer(random)
    _start(playing, step)
    begun_s = since_s = playing.time_s
    while playing.time_s < begun_s + seconds:
        from_s = playing.time_s
        playing.play(step, interval=1 + jitter * float(random.standard_normal()))
        if random.random() < late:
            playing.wait(float(random.uniform(0.1, 0.6)) * step_s, power_w=90.0)
        playing.steps_s.append(playing.time_s - from_s)
        if playing.time_s - since_s > epoch_s:
            for _ in range(max(round(3.0 / (0.3 * step_s)), 2)):
                playing.play(check)
            playing.wait(float(random.uniform(0.2, 1.5)))
            since_s = playing.time_s
    playing.wait(2.5)
    return _seen(playing, {"step": float(np.median(playing.steps_s))}, random)


def _start(playing: _LogPlayer, step: Floats) -> None:
    """Play loading, and the first steps, which try out algorithms and take longer."""
    playing.wait(float(playing.random.uniform(3, 20)), power_w=30.0)
    for _ in range(int(playing.random.integers(1, 4))):
        playing.wait(float(playing.random.uniform(0.1, 0.8)), power_w=110.0, busy=0.4)
        playing.play(step, interval=float(playing.random.uniform(1.1, 2.0)))


def _language_model(random: Generator) -> TraceCase:
    """Imitate a language model with checkpoints, polled ten times a second, without memory utilisation."""
    step_s, every = float(random.uniform(0.33, 0.9)), int(random.integers(30, 60))
    saving_s = float(random.uniform(2.0, 12.0))
    step = _layers(random, step_s, layers=int(random.integers(4, 12)), swing=0.15)
    playing = _LogPlayer(random)
    playing.wait(float(random.uniform(5, 30)), power_w=20.0)
    begun_s = playing.time_s
    for number in range(1, int(5.5 * every)):
        playing.play(step, interval=1 + 0.01 * float(random.standard_normal()))
        if number % every == 0:
            playing.wait(saving_s * float(random.uniform(0.95, 1.05)), power_w=100.0)
    periods_s = {"step": step_s, "cycle": every * step_s + saving_s}
    case = _seen(playing, periods_s, random, polls_s=(0.102, 0.105), seconds=playing.time_s - begun_s)
    return replace(case, samples=replace(case.samples, mem_util=None))


def _accumulation(random: Generator) -> TraceCase:
    """Imitate gradients added up over many micro-steps, then an update of another kind; a sensor of 100 ms."""
    micro_s, many = float(random.uniform(0.5, 1.5)), int(random.choice((8, 16, 32, 48)))
    micro = _layers(random, micro_s, layers=int(random.integers(3, 8)), swing=0.15)
    update = _layers(random, float(random.uniform(0.2, 1.0)), layers=2, swing=0.1)
    playing = _LogPlayer(random)
    playing.wait(float(random.uniform(3, 15)), power_w=80.0)
    begun_s = playing.time_s
    while playing.time_s < begun_s + max(90.0, 4.5 * many * micro_s):
        for _ in range(many):
            playing.play(micro, interval=1 + 0.01 * float(random.standard_normal()))
        playing.play(update)
    update_s = float(update[0].sum())
    periods_s = {"pass": micro_s, "micro-step": micro_s + update_s / many, "step": many * micro_s + update_s}
    return _seen(playing, periods_s, random, polls_s=(0.1, 0.1), refresh_s=0.1)


def _seen(
    playing: _LogPlayer,
    periods_s: Mapping[str, float],
    random: Generator,
    *,
    polls_s: tuple[float, float] | None = None,
    refresh_s: float = 0.02,
    seconds: float | None = None,
) -> TraceCase:
    """Poll what was played; a new value every poll or two, some of them twice."""
    total_s = playing.time_s if seconds is None else min(playing.time_s, seconds + 30.0)
    chosen_s = polls_s or _POLLS_S[int(random.integers(len(_POLLS_S)))]
    window_s = float(random.uniform(0.25, 1.0)) * refresh_s
    noise_w = float(random.uniform(0.3, 2.5))
    sensing = Sensing(refresh_s=refresh_s, window_s=window_s, noise_w=noise_w, poll_s=min(chosen_s) / 2)
    finest = polled(playing.load(periods_s), sensing, total_s, random=random)
    return TraceCase(
        file="", kind="", samples=_picked(finest, chosen_s), verdict=Verdict.PERIODIC, periods_s=dict(periods_s)
    )


def _picked(finest: PowerSamples, polls_s: tuple[float, float]) -> PowerSamples:
    """Pick the samples that polls of two lengths would have read."""
    pairs = int(finest.duration_s / sum(polls_s))
    times_s = finest.time_s[0] + np.cumsum(np.tile(polls_s, pairs))
    place = np.clip(np.searchsorted(finest.time_s, times_s, side="right") - 1, 0, len(finest) - 1)
    return finest.where(np.isin(np.arange(len(finest)), place))


LOGS: Mapping[str, Callable[[Generator], TraceCase]] = {
    f"{LOG} a convolutional network": _network,
    f"{LOG} a language model with checkpoints": _language_model,
    f"{LOG} gradient accumulation": _accumulation,
}
