"""Traces as users record them: idle time around training, short windows, uneven steps, checkpoints, and beats."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from math import exp, log, sqrt

import numpy as np
from numpy.random import Generator

from wattune.signals.active import active_part
from wattune.signals.period import CycleKind, Verdict
from wattune.signals.samples import Floats, PowerSamples
from wattune_bench.period.cases import TraceCase
from wattune_bench.period.loads import Load, Sensing, polled

IDLE, WINDOW, UNEVEN, FINE_TUNING, HIDDEN_STEPS, BEAT, BEAT_OF_FOUR = (
    "idle around training",
    "window of 20 s",
    "steps of varying length",
    "fine-tuning on four GPUs",
    "checkpoints of steps that do not show",
    "beat beside the sensor's rate",
    "beat on four GPUs",
)
REAL_WINDOW = "real window of 20 s"
WINDOW_S = 20.0
_OF_EACH = 12
# A window has at least so many steps.
_LEAST_STEPS = 4.0
# Idle power without and with clocks, as of a Titan Xp.
_ASLEEP_W, _AWAKE_W = 12.0, 58.0
_TENTH_S = 0.1


def recorded_cases(*, seed: int) -> Iterator[TraceCase]:
    """Make some traces of every kind."""
    for kind, make in RECORDED.items():
        for number in range(_OF_EACH):
            random = np.random.default_rng((seed, number, sum(map(ord, kind))))
            yield replace(make(random), file=f"simulated/{kind}/{number}/{seed}", kind=kind, seed=seed)


def windows(case: TraceCase) -> Iterator[TraceCase]:
    """Cut the active part of a real trace into windows."""
    active = active_part(case.samples.in_order())
    for start_s in np.arange(active.time_s[0], active.time_s[-1] - WINDOW_S, WINDOW_S / 2):
        inside = (active.time_s >= start_s) & (active.time_s < start_s + WINDOW_S)
        yield replace(case, file=f"{case.file}@{start_s:.0f}", kind=REAL_WINDOW, samples=active.where(inside))


def _network_step(random: Generator, step_s: float) -> Floats:
    """Draw the layers of a step at some clock: duration, power, busy and memory busy."""
    layers = int(random.integers(16, 50))
    duration_s = random.dirichlet(np.full(layers, 1.5)) * step_s
    above_w = float(exp(random.uniform(log(10.0), log(140.0))))
    power_w = _AWAKE_W + above_w * (1 + random.uniform(0.08, 0.25) * random.standard_normal(layers))
    mem_busy = np.clip(random.uniform(0.1, 0.5) + 0.12 * random.standard_normal(layers), 0.0, 1.0)
    return np.array([duration_s, power_w, np.ones(layers), mem_busy])


def _trained(random: Generator, step: Floats, seconds: float) -> tuple[list[Floats], float]:
    """Play steps that vary by a percent, with a loader that is late now and then, and return their median length."""
    late, jitter = float(random.uniform(0.0, 0.02)), float(random.uniform(0.002, 0.01))
    pieces: list[Floats] = []
    lengths_s: list[float] = []
    while sum(lengths_s) < seconds:
        pieces.append(step * np.array([[1 + jitter * random.standard_normal()], [1.0], [1.0], [1.0]]))
        lengths_s.append(float(pieces[-1][0].sum()))
        if random.random() < late:
            pieces.append(_still(float(random.uniform(0.05, 0.3)) * lengths_s[-1], _AWAKE_W))
    return pieces, float(np.median(lengths_s))


def _still(seconds: float, power_w: float) -> Floats:
    return np.array([[seconds], [power_w], [0.0], [0.0]])


def _idle_around(random: Generator) -> TraceCase:
    """Train between idle times; some logs lack the utilisation of the memory, some have power alone."""
    step_s = exp(random.uniform(log(0.26), log(6.8)))
    pieces, median_s = _trained(random, _network_step(random, step_s), max(45.0, 14 * step_s))
    head = [_still(float(random.uniform(1, 12)), _ASLEEP_W), _still(float(random.uniform(2, 15)), _AWAKE_W)]
    tail = [_still(float(random.uniform(1, 8)), _AWAKE_W)]
    samples = _quick(random, Load.of([*head, *pieces, *tail], {}))
    return _periodic(_with_less(random, samples), median_s)


def _window(random: Generator) -> TraceCase:
    step_s = exp(random.uniform(log(0.26), log(WINDOW_S / _LEAST_STEPS)))
    pieces, median_s = _trained(random, _network_step(random, step_s), WINDOW_S + 1)
    samples = _quick(random, Load.of(pieces, {}))
    return _periodic(_with_less(random, samples.where(samples.time_s < samples.time_s[0] + WINDOW_S)), median_s)


def _quick(random: Generator, load: Load) -> PowerSamples:
    """Poll a sensor of 20 ms somewhat more often than it refreshes."""
    sensing = Sensing(refresh_s=0.0197, window_s=0.0197, noise_w=float(random.uniform(0.2, 0.8)), poll_s=0.0125)
    return polled(load, sensing, float(load.duration_s.sum()), random=random)


def _with_less(random: Generator, samples: PowerSamples) -> PowerSamples:
    known = int(random.integers(3))
    sm_util = samples.sm_util if known else None
    return PowerSamples(samples.time_s, samples.power_w, sm_util, samples.mem_util if known == 2 else None)


def _periodic(samples: PowerSamples, step_s: float) -> TraceCase:
    return TraceCase(file="", kind="", samples=samples, verdict=Verdict.PERIODIC, periods_s={"step": step_s})


def _tenth(random: Generator, load: Load, seconds: float) -> PowerSamples:
    """Poll a sensor of 100 ms, which averages over a quarter of the time or all of it."""
    window_s = float(random.choice((0.025, _TENTH_S)))
    sensing = Sensing(refresh_s=_TENTH_S, window_s=window_s, noise_w=1.5, poll_s=_TENTH_S)
    return polled(load, sensing, seconds, random=random)


def _uneven(random: Generator) -> TraceCase:
    """Fine-tune on texts of all lengths: steps of half a second to four, which vary by 5 to 60 %."""
    mean_s, spread = exp(random.uniform(log(0.5), log(4.0))), float(random.uniform(0.05, 0.6))
    parts = int(random.integers(3, 9))
    share, power_w = random.dirichlet(np.full(parts, 2.0)), random.uniform(250, 400, parts)
    busy, mem_busy = np.ones(parts), random.uniform(0.2, 0.7, parts)
    power_w[-1], busy[-1], mem_busy[-1] = random.uniform(100, 200), random.uniform(0.2, 1.0), 0.05
    lengths_s = mean_s * random.lognormal(-(spread**2) / 2, spread, int(300 / mean_s))
    load = Load.of([np.array([share * length_s, power_w, busy, mem_busy]) for length_s in lengths_s], {})
    seen_s = float(lengths_s[np.cumsum(lengths_s) < 120.0].mean())
    return _periodic(_tenth(random, load, 120.0), seen_s)


_GPUS = 4


def _fine_tuning(random: Generator) -> TraceCase:
    """Fine-tune on four GPUs: each step of 0.5 to 4 s waits for the slowest of them, and varies by 10 to 40 %.

    A GPU that waits in a collective counts as busy. Evaluations and checkpoints interrupt the steps.
    """
    mean_s, spread = exp(random.uniform(log(0.5), log(4.0))), float(random.uniform(0.1, 0.4))
    parts, micro = int(random.integers(2, 6)), int(random.choice((1, 1, 2, 4)))
    share, power_w = random.dirichlet(np.full(parts, 2.0)), random.uniform(220, 400, parts)
    memory, wait_w, update_w = random.uniform(0.2, 0.7, parts), random.uniform(120, 180), random.uniform(90, 180)
    update_s, update_busy = float(random.uniform(0.05, 0.15)) * mean_s, float(random.uniform(0.5, 1.0))
    every_s, pause_s = float(random.uniform(30, 90)), float(random.uniform(2, 8))
    sigma = spread * sqrt(micro)
    head = _still(float(random.uniform(2, 15)), 70.0)
    gpus: list[list[Floats]] = [[head] for _ in range(_GPUS)]
    time_s = since_s = 0.0
    lengths_s: list[float] = []
    pauses_s: list[float] = []
    while time_s < 120.0:
        # Texts of all lengths; the ranks have texts of their own, of which some are longer.
        text = random.lognormal(-(sigma**2) / 2, sigma, micro)
        ranks = text * (1 + 0.15 * sigma * random.standard_normal((_GPUS, micro)))
        work_s = np.maximum((mean_s - update_s) * ranks / micro, 0.01)
        slowest_s = float(work_s.sum(axis=1).max())
        for gpu, own_s in zip(gpus, work_s, strict=True):
            gpu += [np.array([share * part_s, power_w, np.ones(parts), memory]) for part_s in own_s]
            gpu.append(np.array([[slowest_s - own_s.sum() + 0.01], [wait_w], [1.0], [0.02]]))
            gpu.append(np.array([[update_s], [update_w], [update_busy], [0.3]]))
        lengths_s.append(slowest_s + 0.01 + update_s)
        time_s += lengths_s[-1]
        if time_s - since_s > every_s:
            for gpu in gpus:
                gpu.append(_still(pause_s, 110.0))
            since_s = time_s = time_s + pause_s
            pauses_s.append(time_s)
    samples, step_s = _on_four(random, gpus), float(np.mean(lengths_s))
    periods_s = {"step": step_s, "micro-step": step_s / micro}
    if len(pauses_s) > 1:
        periods_s["cycle"] = float(np.diff(pauses_s).mean())
    return replace(_periodic(samples[0], step_s), periods_s=periods_s, others=tuple(samples[1:]))


def _on_four(random: Generator, gpus: list[list[Floats]]) -> list[PowerSamples]:
    """Sample each GPU by its own sensor; some logs have utilisation, most only that of the cores, some power alone."""
    known, window_s = int(random.integers(4)), float(random.choice((0.025, 0.025, _TENTH_S)))
    sensing = Sensing(refresh_s=_TENTH_S, window_s=window_s, noise_w=float(random.uniform(1, 4)), poll_s=_TENTH_S)
    found = []
    for pieces in gpus:
        load = Load.of(pieces, {})
        samples = polled(load, sensing, float(load.duration_s.sum()), random=random)
        mem_util = samples.mem_util if known == 3 else None
        found.append(replace(samples, sm_util=samples.sm_util if known else None, mem_util=mem_util))
    return found


def _hidden_steps(random: Generator) -> TraceCase:
    """Train a language model whose steps are too fast for the sensor, with a checkpoint every so many."""
    step_s, every = float(random.uniform(0.05, 0.16)), int(random.integers(100, 200))
    saving_s, parts = float(random.uniform(2.0, 9.0)), int(random.integers(4, 9))
    step = np.array([random.dirichlet(np.full(parts, 2.0)) * step_s, random.uniform(280, 420, parts)])
    step = np.concatenate((step, [np.ones(parts), np.full(parts, 0.4)]))
    cycle = [step] * every
    pieces = [_still(float(random.uniform(3, 20)), 70.0)]
    for _ in range(6):
        pieces += [*cycle, _still(saving_s * float(random.uniform(0.95, 1.05)), 120.0)]
    load = Load.of(pieces, {})
    samples = replace(_tenth(random, load, float(load.duration_s.sum())), mem_util=None)
    period_s = {"cycle": every * step_s + saving_s}
    case = TraceCase(file="", kind="", samples=samples, verdict=Verdict.PERIODIC, periods_s=period_s)
    return replace(case, level=CycleKind.CYCLE)


def _beat(random: Generator) -> TraceCase:
    """Switch between two powers just slower or faster than the sensor refreshes.

    Utilisation is known: power alone cannot show that a sharp wave of ten refreshes or more is a beat.
    """
    step_s = _TENTH_S * float(random.choice((-1, 1)) * random.uniform(0.015, 0.09) + 1)
    wave = np.resize([1.0, 0.0], 2 * round(65 / step_s))
    lengths_s = step_s / 2 * (1 + float(random.uniform(0.0, 0.004)) * random.standard_normal(len(wave)))
    load = Load(duration_s=lengths_s, power_w=80 + 170 * wave, busy=wave, mem_busy=0.5 * wave)
    samples = _tenth(random, load, 60.0)
    if random.random() < 0.5:
        samples = replace(samples, mem_util=None)
    return TraceCase(file="", kind="", samples=samples, verdict=Verdict.NOT_OBSERVABLE)


def _beat_of_four(random: Generator) -> TraceCase:
    """Train on four GPUs with steps just slower or faster than the sensors refresh, of somewhat varying length."""
    step_s = _TENTH_S * float(random.choice((-1, 1)) * random.uniform(0.02, 0.18) + 1)
    parts = int(random.integers(2, 6))
    step = np.array([random.dirichlet(np.full(parts, 2.0)) * step_s, random.uniform(120, 400, parts)])
    step = np.concatenate((step, [np.ones(parts), np.full(parts, 0.4)]))
    jitter = float(random.uniform(0.0, 0.03))
    longer = 1 + jitter * random.standard_normal(round(100 / step_s))
    pieces = [step * np.array([[by], [1.0], [1.0], [1.0]]) for by in longer]
    samples = _on_four(random, [pieces] * _GPUS)
    case = TraceCase(file="", kind="", samples=samples[0], verdict=Verdict.NOT_OBSERVABLE)
    return replace(case, others=tuple(samples[1:]))


RECORDED: Mapping[str, Callable[[Generator], TraceCase]] = {
    IDLE: _idle_around,
    WINDOW: _window,
    UNEVEN: _uneven,
    FINE_TUNING: _fine_tuning,
    HIDDEN_STEPS: _hidden_steps,
    BEAT: _beat,
    BEAT_OF_FOUR: _beat_of_four,
}
