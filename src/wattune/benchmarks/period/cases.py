"""Traces whose truth is known: simulated ones of every kind on the sensors of every GPU of the catalogue."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from math import exp, log

import numpy as np
from numpy.random import Generator

from wattune.benchmarks.period.loads import Load, LoadPlan, Sensing, chance, polled, steady, training, wandering
from wattune.physics.catalog import catalog_names, load_model
from wattune.signals.period import Verdict
from wattune.signals.samples import PowerSamples


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class TraceCase:
    """A trace, what is true of it, and where it comes from."""

    file: str
    kind: str
    samples: PowerSamples
    verdict: Verdict
    periods_s: Mapping[str, float] = field(default_factory=dict)
    """By level, those that the sensor can follow."""
    spans_s: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    """Where the truth itself is only known to lie between two bounds."""
    gpu: str | None = None
    seed: int | None = None
    simulated: bool = True


# A period is log-uniform between what the sensor just shows and the slowest step that is common.
_SLOWEST_S = 6.0
_LEAST_S = 0.08
# Refreshes per period from which on a sensor is said to follow it; two would be the bare limit.
_FOLLOWED = 3.0


def simulated_cases(*, seed: int) -> Iterator[TraceCase]:
    """One trace of every kind for each GPU of the catalogue."""
    for number, gpu in enumerate(catalog_names()):
        for kind, make in KINDS.items():
            random = np.random.default_rng((seed, number, len(kind), sum(map(ord, kind))))
            yield replace(make(gpu, random), file=f"simulated/{kind}/{gpu}/{seed}", kind=kind, gpu=gpu, seed=seed)


def _sensing(gpu: str, random: Generator) -> Sensing:
    sensing = Sensing.of(load_model(gpu), poll_s=1.0)
    polls_s = (0.01, 0.02, 0.05, 0.1) if sensing.refresh_s > 0.05 else (0.005, 0.01, 0.02)
    return replace(sensing, poll_s=float(random.choice(polls_s)))


def _step_s(sensing: Sensing, random: Generator, *, parts: int = 1) -> float:
    """A step whose parts the sensor can follow."""
    least_s = parts * max(_FOLLOWED * max(sensing.refresh_s, sensing.window_s, sensing.poll_s), _LEAST_S)
    return exp(random.uniform(log(least_s), log(max(_SLOWEST_S, 4 * least_s))))


def _case(load: Load, sensing: Sensing, seconds: float, random: Generator, *, verdict: Verdict) -> TraceCase:
    seen = {name: period_s for name, period_s in load.periods_s.items() if period_s >= sensing.finest_s}
    samples = polled(load, sensing, seconds, random=random)
    return TraceCase(file="", kind="", samples=samples, verdict=verdict, periods_s=seen)


def _steps(
    gpu: str, random: Generator, *, jitter: float = 0.003, drift: float = 0.0, missing: float = 0.0
) -> TraceCase:
    sensing = replace(_sensing(gpu, random), drift=drift, missing=missing)
    plan = LoadPlan(step_s=_step_s(sensing, random), jitter=jitter)
    seconds = max(30.0, float(random.uniform(12, 40)) * plan.step_s)
    load = training(plan, seconds, random=random)
    return _case(load, sensing, seconds, random, verdict=Verdict.PERIODIC)


def _noisy(gpu: str, random: Generator) -> TraceCase:
    """Noise of half the swing, as of a second program on the board."""
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
    seconds = max(60.0, 20 * plan.step_s)
    load = training(plan, seconds, random=random)
    return _case(load, sensing, seconds, random, verdict=Verdict.PERIODIC)


def _saving(gpu: str, random: Generator, *, parts: tuple[int, ...] = (1,)) -> TraceCase:
    sensing = _sensing(gpu, random)
    chosen = int(random.choice(parts))
    step_s = min(_step_s(sensing, random, parts=chosen), 4.0)
    plan = LoadPlan(
        step_s=step_s, parts=chosen, steps=int(random.integers(15, 50)), checkpoint_s=float(random.uniform(0.5, 3))
    )
    seconds = max(60.0, 4.5 * ((plan.steps or 1) * step_s + plan.checkpoint_s))
    load = training(plan, seconds, random=random)
    return _case(load, sensing, seconds, random, verdict=Verdict.PERIODIC)


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
    """Steps too short for the sensor."""
    sensing = _sensing(gpu, random)
    plan = LoadPlan(step_s=float(random.uniform(0.15, 0.95)) * sensing.finest_s, jitter=jitter)
    load = training(plan, 60.0, random=random)
    return _case(load, sensing, 60.0, random, verdict=Verdict.NOT_OBSERVABLE)


Make = Callable[[str, Generator], TraceCase]

KINDS: Mapping[str, Make] = {
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
