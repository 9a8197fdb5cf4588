"""Loads whose periods are known, as intervals of constant power, and the sampling of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import sqrt

import numpy as np
from numpy.random import Generator
from scipy.signal import lfilter

from wattune.physics.gpu_model import GpuModel
from wattune.physics.sensor import UTILISATION_S
from wattune.signals.samples import Floats, PowerSamples

_LEVELS_W = (130.0, 330.0)
_IDLE_W = 85.0
# The optimizer's share of a step that accumulates gradients.
_UPDATE = 0.08


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Load:
    """Power and utilisation of a GPU, interval by interval, and the periods of the load."""

    duration_s: Floats
    power_w: Floats
    busy: Floats
    mem_busy: Floats
    periods_s: Mapping[str, float] = field(default_factory=dict)
    """Periods by level: pass (a micro-step alone), micro-step (with its share of the update), step, cycle; empty where
    nothing repeats."""

    @classmethod
    def of(cls, pieces: list[Floats], periods_s: Mapping[str, float]) -> Load:
        """Join pieces that have the rows duration, power, busy and memory busy."""
        duration_s, power_w, busy, mem_busy = np.concatenate(pieces, axis=1)
        return cls(duration_s=duration_s, power_w=power_w, busy=busy, mem_busy=mem_busy, periods_s=periods_s)

    def after(self, seconds: float) -> Load:
        """Return the load after some idle time."""
        return Load(
            duration_s=np.append(seconds, self.duration_s),
            power_w=np.append(60.0, self.power_w),
            busy=np.append(0.0, self.busy),
            mem_busy=np.append(0.0, self.mem_busy),
            periods_s=self.periods_s,
        )

    @property
    def swing_w(self) -> float:
        """Standard deviation of power over time."""
        mean_w = np.average(self.power_w, weights=self.duration_s)
        return sqrt(float(np.average((self.power_w - mean_w) ** 2, weights=self.duration_s)))


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadPlan:
    """The sequence of steps."""

    step_s: float
    jitter: float = 0.003
    """Standard deviation of a step's length over its mean: real steps vary by some tenths of a percent."""
    parts: int = 1
    """Micro-steps per step."""
    steps: int | None = None
    """Steps between checkpoints; None without any."""
    checkpoint_s: float = 1.0


def training(plan: LoadPlan, seconds: float, *, random: Generator) -> Load:
    """Make steps of the plan for at least so long."""
    part = _profile(random, plan.step_s * (1 - _UPDATE if plan.parts > 1 else 1) / plan.parts)
    update = np.array([[plan.step_s * _UPDATE], [random.uniform(110, 350)], [1.0], [random.uniform(0.1, 0.9)]])
    pieces, time_s, steps, saved_s, saves = [], 0.0, 0, 0.0, 0
    while time_s < seconds + 2:
        for _ in range(plan.parts):
            pieces.append(_drawn(part, plan, random))
            time_s += float(pieces[-1][0].sum())
        if plan.parts > 1:
            pieces.append(update)
            time_s += float(update[0].sum())
        steps += 1
        if plan.steps and steps % plan.steps == 0:
            length_s = plan.checkpoint_s * (1 + 0.05 * random.standard_normal())
            pieces.append(np.array([[length_s], [_IDLE_W], [0.0], [0.0]]))
            time_s, saved_s, saves = time_s + length_s, saved_s + length_s, saves + 1
    step_s = (time_s - saved_s) / steps
    periods_s = {"step": step_s}
    if plan.parts > 1:
        periods_s["micro-step"] = step_s / plan.parts
        periods_s["pass"] = step_s * (1 - _UPDATE) / plan.parts
    if plan.steps and saves:
        periods_s["cycle"] = plan.steps * step_s + saved_s / saves
    return Load.of(pieces, periods_s)


def chance(seconds: float, *, typical_s: float, random: Generator) -> Load:
    """Make intervals of random length at random power: nothing repeats."""
    count = int(4 * seconds / typical_s) + 16
    power_w = random.uniform(100, 330, count)
    return Load(
        duration_s=random.lognormal(np.log(typical_s), 0.8, count),
        power_w=power_w,
        busy=(power_w > 130).astype(np.float64),
        mem_busy=random.uniform(0.0, 0.9, count),
    )


def wandering(seconds: float, *, memory_s: float, random: Generator) -> Load:
    """Make power that wanders about its mean, with a memory of `memory_s`: nothing repeats."""
    step_s = 0.005
    count = int(seconds / step_s) + 16
    keep = float(np.exp(-step_s / memory_s))
    walk = lfilter([1.0], [1.0, -keep], random.standard_normal(count) * sqrt(1 - keep**2))
    return Load(
        duration_s=np.full(count, step_s),
        power_w=220 + 40 * walk,
        busy=np.ones(count),
        mem_busy=np.clip(0.5 + 0.2 * walk, 0.0, 1.0),
    )


def steady(seconds: float) -> Load:
    """Make a load of constant power."""
    return Load(
        duration_s=np.array([seconds + 10]), power_w=np.array([250.0]), busy=np.ones(1), mem_busy=np.array([0.5])
    )


def _profile(random: Generator, length_s: float) -> Floats:
    """Draw two to six intervals of one pass; in half of the cases one of them is a wait."""
    count = int(random.integers(2, 7))
    duration_s = random.dirichlet(np.full(count, 2.0)) * length_s
    power_w, busy, mem_busy = random.uniform(*_LEVELS_W, count), np.ones(count), random.uniform(0.1, 0.9, count)
    if random.random() < 0.5:
        wait = int(random.integers(count))
        power_w[wait], busy[wait], mem_busy[wait] = _IDLE_W, 0.0, 0.0
    return np.array([duration_s, power_w, busy, mem_busy])


def _drawn(part: Floats, plan: LoadPlan, random: Generator) -> Floats:
    """Draw one pass, of which one interval (the wait, where there is one) varies in length."""
    drawn = part.copy()
    place = int(np.argmin(part[2]))
    off_s = plan.jitter * plan.step_s / sqrt(plan.parts) * random.standard_normal()
    drawn[0, place] = max(part[0, place] + off_s, 0.05 * part[0, place])
    return drawn


# A poll of a driver comes early or late by some percent of its interval.
_POLL_JITTER = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class Sensing:
    """The sampling of a load."""

    refresh_s: float
    window_s: float
    noise_w: float
    poll_s: float
    drift: float = 0.0
    """Share by which power has risen once the GPU is warm."""
    missing: float = 0.0
    """The share of polls that are lost."""

    @classmethod
    def of(cls, model: GpuModel, *, poll_s: float) -> Sensing:
        """Sample as the sensors of a GPU model do."""
        refresh_s = model.sensors.power_period_s or 0.02
        return cls(
            refresh_s=refresh_s,
            window_s=model.sensors.power_window_s or refresh_s,
            noise_w=model.noise_w,
            poll_s=poll_s,
        )

    @property
    def finest_s(self) -> float:
        """The shortest period that can be seen: two refreshes, or two polls where these are rarer."""
        return 2 * max(self.refresh_s, self.poll_s)


# Time constant of a cooler (physics: 20 to 60 s).
_WARMING_S = 40.0


def polled(load: Load, sensing: Sensing, seconds: float, *, random: Generator) -> PowerSamples:
    """Poll the load over so many seconds."""
    refreshes_s = np.arange(random.uniform(0, sensing.refresh_s), seconds, sensing.refresh_s)
    shown_w = _mean(load, load.power_w, refreshes_s, sensing.window_s)
    shown_w = shown_w * (1 + sensing.drift * (1 - np.exp(-refreshes_s / _WARMING_S)))
    shown_w = shown_w + sensing.noise_w * random.standard_normal(len(refreshes_s))
    windows_s = np.arange(random.uniform(0, UTILISATION_S), seconds, UTILISATION_S)
    busy, mem_busy = (_mean(load, values, windows_s, UTILISATION_S) for values in (load.busy, load.mem_busy))
    first_s = max(refreshes_s[0], windows_s[0])
    steps = sensing.poll_s * np.clip(1 + _POLL_JITTER * random.standard_normal(int(seconds / sensing.poll_s)), 0.5, 3)
    polls_s = np.cumsum(steps)
    polls_s = polls_s[(polls_s > first_s) & (polls_s < seconds)]
    polls_s = polls_s[random.random(len(polls_s)) >= sensing.missing]
    power = np.searchsorted(refreshes_s, polls_s, side="right") - 1
    window = np.searchsorted(windows_s, polls_s, side="right") - 1
    # The driver reports power to 10 mW and utilisation to a percent.
    return PowerSamples(polls_s, np.round(shown_w[power], 2), np.round(busy[window], 2), np.round(mem_busy[window], 2))


def _mean(load: Load, values: Floats, end_s: Floats, window_s: float) -> Floats:
    """Return the mean of a quantity over the windows that end at these times."""
    ends_s = np.append(0.0, np.cumsum(load.duration_s))
    totals = np.append(0.0, np.cumsum(load.duration_s * values))
    start_s = np.maximum(end_s - window_s, 0.0)
    spent = np.interp(end_s, ends_s, totals) - np.interp(start_s, ends_s, totals)
    return np.asarray(spent / np.maximum(end_s - start_s, 1e-9))
