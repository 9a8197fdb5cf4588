"""The policy of ODPP: measure seven core clocks, correct a curve through them by a small network, hold the best clock.

Source: Zou et al., "Indicator-directed dynamic power management", CCGrid 2020, as the authors of GPOEO (IEEE TPDS 2022)
reimplemented it for their comparison. Four clocks from 450 to 1920 MHz give piecewise linear curves of time and energy.
Networks trained on other programs correct both, after training on the three clocks half-way between. The policy
minimises E·T² within 0.9 of the slowdown limit; the baseline is the highest of the four clocks, and the memory clock
stays. A shift of the power by 15 % starts everything again.

The reimplementation confuses seconds with ratios; here time and energy are relative to the baseline, as published. A
program without a period of at most a minute is not tuned, because nothing shows its step time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from itertools import pairwise
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from wattune.core.gpu_spec import GpuSpec
from wattune.core.objective import Objective
from wattune.core.setting import DRIVER_DEFAULT, Setting
from wattune.core.window import Order, Purpose, Window
from wattune.levels.run.gpoeo.search import GpoeoPoint, GpoeoRule
from wattune.levels.run.gpoeo.training import catalog_name, programs_of, settled, training_workloads
from wattune.levels.run.policies import slowdown_of
from wattune.levels.run.procedure import Procedure, PublishedPolicy, forever, ordered, watched
from wattune.levels.run.simulated_program import SimulatedProgram
from wattune.physics.catalog import load_model
from wattune.physics.gpu_parts import Floats

_RATE, _FIRST_DECAY, _SECOND_DECAY, _TINY = 1e-3, 0.9, 0.999, 1e-7
"""Adam (Kingma and Ba 2015)."""


@dataclass(frozen=True, slots=True, eq=False)
class Perceptron:
    """A small neural network: ReLU layers, a linear layer at the end, one output."""

    weights: tuple[Floats, ...]
    biases: tuple[Floats, ...]
    centre: Floats
    scale: Floats

    def __call__(self, inputs: Floats) -> Floats:
        return np.asarray(self._forward(inputs)[-1][:, 0])

    def trained(self, inputs: Floats, targets: Floats, *, epochs: int, batch: int, seed: int = 0) -> Perceptron:
        """Return the network after training with Adam on these rows."""
        weights, biases = [one.copy() for one in self.weights], [one.copy() for one in self.biases]
        network = replace(self, weights=tuple(weights), biases=tuple(biases))
        moments = [(np.zeros_like(one), np.zeros_like(one)) for one in (*weights, *biases)]
        random = np.random.default_rng(seed)
        for count, rows in enumerate(_batches(len(inputs), epochs, batch, random), start=1):
            gradients = network._gradients(inputs[rows], targets[rows])
            for value, gradient, (first, second) in zip((*weights, *biases), gradients, moments, strict=True):
                first += (1 - _FIRST_DECAY) * (gradient - first)
                second += (1 - _SECOND_DECAY) * (gradient * gradient - second)
                step = first / (1 - _FIRST_DECAY**count)
                value -= _RATE * step / (np.sqrt(second / (1 - _SECOND_DECAY**count)) + _TINY)
        return network

    def _forward(self, inputs: Floats) -> list[Floats]:
        layers = [(inputs - self.centre) / self.scale]
        last = len(self.weights) - 1
        for place, (weight, bias) in enumerate(zip(self.weights, self.biases, strict=True)):
            out = layers[-1] @ weight + bias
            layers.append(out if place == last else np.maximum(out, 0.0))
        return layers

    def _gradients(self, inputs: Floats, targets: Floats) -> list[Floats]:
        """Return the gradients of all weights, then of all biases."""
        layers = self._forward(inputs)
        slope = 2.0 * (layers[-1] - targets[:, np.newaxis]) / len(targets)
        weights: list[Floats] = []
        biases: list[Floats] = []
        for place in range(len(self.weights) - 1, -1, -1):
            weights.insert(0, layers[place].T @ slope)
            biases.insert(0, slope.sum(axis=0))
            if place:
                slope = (slope @ self.weights[place].T) * (layers[place] > 0)
        return [*weights, *biases]


def untrained(inputs: Floats, *, hidden: tuple[int, ...], seed: int = 0) -> Perceptron:
    """Return an untrained network for such inputs, with weights after Glorot and Bengio 2010."""
    random = np.random.default_rng(seed)
    sizes = (inputs.shape[1], *hidden, 1)
    pairs = list(pairwise(sizes))
    weights = tuple(random.uniform(-1, 1, pair) * np.sqrt(6.0 / sum(pair)) for pair in pairs)
    biases = tuple(np.zeros(size) for size in sizes[1:])
    scale = inputs.std(axis=0)
    return Perceptron(weights, biases, inputs.mean(axis=0), np.where(scale > 0, scale, 1.0))


def _batches(rows: int, epochs: int, batch: int, random: np.random.Generator) -> Iterator[NDArray[np.intp]]:
    for _ in range(epochs):
        order = random.permutation(rows)
        for start in range(0, rows, batch):
            yield order[start : start + batch]


_LOWEST, _HIGHEST = 450 / 2055, 1920 / 2055
_SAMPLES = 4
_SETTLE_S = 1.0
_FIRST_S, _PERIODS, _LONGEST_S = 25.0, 3.0, 180.0
_MARGIN = 0.9
_SHIFT = 0.15
_HIDDEN = (46, 92, 92)
_BATCH, _PRETRAINING_EPOCHS, _TRAINING_EPOCHS = 24, 20, 20
"""Batches small enough for matrix products on one thread: threads wait for each other on busy machines."""
FLOOR_W = 32.0
"""Energy counts above this: 32 W on the RTX 3080 Ti in the program that was released."""


Corrections = tuple[Perceptron, Perceptron]
"""The two networks that correct a curve: of time and of energy."""


@dataclass(frozen=True, slots=True)
class OdppCase:
    """A program at its baseline: power in W, and utilisation of cores and memory, 0 to 1."""

    power_w: float
    sm_util: float
    mem_util: float


def learned(spec: GpuSpec) -> Corrections | None:
    """Train the networks of a GPU, once; this takes some seconds. None for a GPU that is not in the catalogue."""
    gpu = catalog_name(spec)
    return None if gpu is None else trained_corrections(gpu)


def untaught(spec: GpuSpec) -> None:
    """Return no networks."""
    del spec


@dataclass(frozen=True, slots=True)
class OdppPolicy(PublishedPolicy):
    """ODPP; without corrections the curve goes through all seven clocks."""

    slowdown: float = 0.05
    learn: Callable[[GpuSpec], Corrections | None] = learned
    """Called at the first step."""

    name: ClassVar[str] = "odpp"

    @classmethod
    def of(cls, objective: Objective) -> OdppPolicy:
        """Make the policy for an objective."""
        return cls(slowdown_of(cls.name, objective))

    def _tune(self, spec: GpuSpec) -> Procedure[None]:
        corrections = self.learn(spec)
        clocks = searched_mhz(spec)
        if len(clocks) < 2:
            yield from forever(DRIVER_DEFAULT, why="there are no core clocks to choose from")
        while True:
            found: dict[int, Window] = {}
            for sm_mhz in (*sampled_mhz(clocks), *between_mhz(clocks)):
                window = yield from _measured(sm_mhz)
                if window.step_time_s is None:
                    yield from forever(DRIVER_DEFAULT, why="the program shows no period")
                found[sm_mhz] = window
            period_s = found[max(found)].step_time_s or _FIRST_S
            length_s = max(min(_PERIODS * period_s, _LONGEST_S), _FIRST_S)
            setting = Setting(self._chosen(clocks, found, corrections))
            yield from watched(setting, bound=_SHIFT, period_s=period_s, length_s=length_s, floor_w=FLOOR_W)

    def _chosen(self, clocks: tuple[int, ...], found: dict[int, Window], corrections: Corrections | None) -> int:
        base = found[max(found)]
        case = OdppCase(base.power_w, base.sm_util or 0.0, base.mem_util or 0.0)
        measured = tuple(sorted((mhz, *_relative(window, base)) for mhz, window in found.items()))
        predicted = _predicted(corrections, clocks, measured, case)
        points = [GpoeoPoint(time, energy) for time, energy in predicted]
        return clocks[GpoeoRule(GpoeoPoint(1.0, 1.0), _MARGIN * self.slowdown).best(points)]


def searched_mhz(spec: GpuSpec) -> tuple[int, ...]:
    """Return the core clocks to consider: 450 to 1920 MHz on the RTX 3080 Ti, the same shares elsewhere."""
    clocks = spec.sm_clocks_mhz
    if not clocks:
        return ()
    return tuple(mhz for mhz in clocks if _LOWEST * clocks[-1] - 1 <= mhz <= _HIGHEST * clocks[-1] + 1) or clocks


def sampled_mhz(clocks: Sequence[int]) -> tuple[int, ...]:
    """Return the clocks through which the curve goes, ascending."""
    wanted = np.linspace(clocks[0], clocks[-1], _SAMPLES)
    return tuple(sorted({_nearest(clocks, float(mhz)) for mhz in wanted}))


def between_mhz(clocks: Sequence[int]) -> tuple[int, ...]:
    """Return the clocks half-way between those of the curve, for training; without duplicates."""
    samples = sampled_mhz(clocks)
    wanted = [(low + high) / 2 for low, high in pairwise(samples)]
    return tuple(sorted({_nearest(clocks, mhz) for mhz in wanted} - set(samples)))


def _nearest(clocks: Sequence[int], wanted_mhz: float) -> int:
    return min(clocks, key=lambda mhz: abs(mhz - wanted_mhz))


def pretrained(inputs: Floats, targets: Floats) -> Perceptron:
    """Train a network on other programs: rows of `correction_inputs` and their targets."""
    return untrained(inputs, hidden=_HIDDEN).trained(inputs, targets, epochs=_PRETRAINING_EPOCHS, batch=_BATCH)


def correction_inputs(curve: Floats, relative: Floats, case: OdppCase) -> Floats:
    """Return (clocks, 5): the curve, the clock relative to the baseline, and the program at its baseline."""
    same = np.ones_like(curve)
    return np.column_stack([curve, relative, case.power_w * same, case.sm_util * same, case.mem_util * same])


@lru_cache(maxsize=256)
def _predicted(
    corrections: Corrections | None,
    clocks: tuple[int, ...],
    measured: tuple[tuple[int, float, float], ...],
    case: OdppCase,
) -> tuple[tuple[float, float], ...]:
    """Predict time and energy relative to the baseline at every clock; cached, since policies replay their windows."""
    rows = np.array(measured)
    if corrections is None:
        curves = [np.interp(clocks, rows[:, 0], rows[:, kind]) for kind in (1, 2)]
        return tuple(zip(*(curve.tolist() for curve in curves), strict=True))
    samples = np.isin(rows[:, 0], sampled_mhz(clocks))
    relative = np.array(clocks) / clocks[-1]
    found = []
    for kind, network in enumerate(corrections, start=1):
        known, others = rows[samples], rows[~samples]
        curve = np.interp(clocks, known[:, 0], known[:, kind])
        if len(others):
            there = np.interp(others[:, 0], known[:, 0], known[:, kind])
            inputs = correction_inputs(there, others[:, 0] / clocks[-1], case)
            network = network.trained(inputs, others[:, kind], epochs=_TRAINING_EPOCHS, batch=_BATCH)
        found.append(network(correction_inputs(curve, relative, case)).tolist())
    return tuple(zip(*found, strict=True))


def _relative(window: Window, base: Window) -> tuple[float, float]:
    """Return time and energy above the floor, relative to the baseline."""
    time = (window.step_time_s or 0.0) / (base.step_time_s or 1.0)
    return time, time * max(window.power_w - FLOOR_W, 0.0) / max(base.power_w - FLOOR_W, 1.0)


def _measured(sm_mhz: int) -> Procedure[Window]:
    """Measure a clock for three periods."""
    window = yield _order(sm_mhz, _FIRST_S, settle_s=_SETTLE_S)
    wanted_s = _LONGEST_S if window.step_time_s is None else min(_PERIODS * window.step_time_s, _LONGEST_S)
    if wanted_s > _FIRST_S:
        more = yield _order(sm_mhz, max(wanted_s - _FIRST_S, _FIRST_S), settle_s=0.0)
        window = more if more.step_time_s is not None else window
    return window


def _order(sm_mhz: int, seconds: float, *, settle_s: float) -> Order:
    return ordered(Setting(sm_mhz), Purpose.TRIAL, seconds, settle_s=settle_s, why="a clock of the curve")


_EVERY = 3
"""Neighbouring clocks are nearly equal."""


@cache
def trained_corrections(gpu: str) -> Corrections:
    """Train the networks of a GPU of the catalogue, once; this takes some seconds."""
    rows = [_rows(program) for program in programs_of(load_model(gpu), training_workloads())]
    time_inputs, energy_inputs = (np.concatenate([row[place] for row in rows]) for place in (0, 1))
    time, energy = (np.concatenate([row[place] for row in rows]) for place in (2, 3))
    return pretrained(time_inputs, time), pretrained(energy_inputs, energy)


def _rows(program: SimulatedProgram) -> tuple[Floats, Floats, Floats, Floats]:
    """Return the inputs of the two networks and their targets."""
    clocks = searched_mhz(program.model.spec())
    places = [program.model.clocks[0].sm_mhz.index(mhz) for mhz in clocks]
    time_s, energy_j, held = settled(program, 0)
    base = places[-1]
    column = int(held[base])
    busy, traffic = float(program.busy[0][column]), float(program.traffic[0][column])
    case = OdppCase(float(energy_j[base] / time_s[base]), busy, traffic)
    above_j = energy_j - FLOOR_W * time_s
    targets = [(values / values[base])[places] for values in (time_s, above_j)]
    relative = np.array(clocks) / clocks[-1]
    samples = sampled_mhz(clocks)
    curves = [np.interp(clocks, samples, values[[clocks.index(mhz) for mhz in samples]]) for values in targets]
    inputs = [correction_inputs(curve, relative, case)[::_EVERY] for curve in curves]
    return inputs[0], inputs[1], targets[0][::_EVERY], targets[1][::_EVERY]
