"""A program on a simulated GPU, played window by window.

What passes is played part by part of the program's pass, at the clock that holds: asked for, or what the power limit
leaves. The GPU begins cold and warms up, which raises leakage and, under a power limit, lowers the clock. A new clock
takes the part's switching time, during which the old one holds. What a window shows of all this is drawn as `run_sight`
says.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import exp, hypot, sqrt

import numpy as np

from wattune.benchmarks.run.observation import (
    FIRST_UNITS,
    LEAST_UNITS,
    UTIL_GAIN,
    UTIL_PERIOD_S,
    UTIL_SETTING,
    WRONG,
    ObservationNoise,
    observation_of,
)
from wattune.core.gpu_spec import GpuSpec
from wattune.core.measurement import SIGMAS_95, Measurement
from wattune.core.setting import DRIVER_DEFAULT, Setting
from wattune.core.window import Order, Purpose, Window
from wattune.levels.run.simulated_program import SimulatedProgram, counters

SETTLE_S = 1.0
"""From the order to the window where the order leaves it open: a few times what a clock takes, at least."""

_INTERVAL_S = 10.0
"""Temperature and clock are looked at again after so long, a quarter of the time that a GPU takes to warm up."""
_STEADY_K = 0.2
_COUNTER_ERROR = 0.002
"""What the mean power of a window is off by beyond the refresh of its counter: estimated."""
_TRUST = 0.1
"""An error bar is itself an estimate: its logarithm scatters by so much."""


@dataclass(slots=True)
class _Place:
    """Where the program and the GPU stand."""

    time_s: float
    energy_j: float
    passes: float
    temperature_c: float
    setting: Setting
    luck_s: float = 0.0


@dataclass(frozen=True, slots=True)
class _Rates:
    """A setting at a temperature: what a pass takes and spends, and what is seen meanwhile."""

    pass_s: float
    power_w: float
    unit_s: float
    busy: float
    traffic: float
    sm_mhz: float


class SimulatedRun:
    """One run of a program; `look` carries out an order and tells what was seen."""

    def __init__(self, program: SimulatedProgram, *, seed: int = 0, noisy: bool = True) -> None:
        self.program = program
        self.spec: GpuSpec = program.model.spec()
        self.observation: ObservationNoise = observation_of(program)
        self._random = np.random.default_rng((seed, sum(program.name.encode())))
        self._noisy = noisy
        self._gain = 1.0 + UTIL_GAIN * self._random.standard_normal()
        self._offsets: dict[Setting, tuple[float, float]] = {}
        self._known = False
        thermal, idle_w = program.model.thermal, program.model.idle_w
        self._at = _Place(0.0, 0.0, 0.0, thermal.steady_c(idle_w), DRIVER_DEFAULT)

    @property
    def passes(self) -> float:
        """Work done: passes of the program's outermost loop."""
        return self._at.passes

    @property
    def spent(self) -> Measurement:
        """Time and energy since the beginning."""
        return Measurement(self._at.time_s, self._at.energy_j)

    @property
    def luck_s(self) -> float:
        """How much longer the program's own waits took than they do on average, whatever was set."""
        return self._at.luck_s

    def look(self, order: Order, *, until_passes: float | None = None) -> Window:
        """The window that was ordered; it ends early where the program has done all of its work."""
        before = self.spent
        if order.setting != self._at.setting:
            self._switch(order)
        settling = _since(before, self.spent)
        start = self.spent
        rates = self._rates()
        length_s = self._length_s(order, rates)
        mean = self._play(length_s, until_passes)
        cost = _since(start, self.spent)
        return self._seen(order, start_s=start.time_s, cost=cost, settling=settling, mean=mean)

    def _switch(self, order: Order) -> None:
        """The old clock holds for a while; then nothing runs for the stall."""
        switching, now = self.spec.switching, self._at
        wait_s = switching.sm_s or 0.0
        if order.setting.mem_mhz != now.setting.mem_mhz:
            wait_s = max(wait_s, switching.mem_s or 0.0)
        settle_s = SETTLE_S if order.settle_s is None else order.settle_s
        self._play(wait_s, None)
        now.setting = order.setting
        if settle_s > wait_s:
            self._play(settle_s - wait_s, None)

    def _length_s(self, order: Order, rates: _Rates) -> float:
        """How long the window lasts: as short as its precision allows."""
        if order.precision is None or self.observation.unit is None:
            return order.most_s if order.precision is not None else order.least_s
        low, high = order.least_s, order.most_s
        if self._error(rates, low) <= order.precision:
            return low
        while high - low > 0.02 * high:
            middle = (low + high) / 2.0
            low, high = (low, middle) if self._error(rates, middle) <= order.precision else (middle, high)
        return high

    def _error(self, rates: _Rates, window_s: float) -> float:
        """Relative 95 % half-width of the pace after so long; 1 where there is no pace yet."""
        if window_s < (LEAST_UNITS if self._known else FIRST_UNITS) * rates.unit_s:
            return 1.0
        return SIGMAS_95 * hypot(*self.observation.spread(rates.unit_s, self._jitter_s(), window_s))

    @property
    def _unit(self) -> tuple[tuple[int, int], ...]:
        """The parts of the unit that is seen."""
        return ((0, 1),) if self.observation.unit == "step" else self.program.round

    def _jitter_s(self) -> float:
        return sqrt(sum(units * self.program.parts[place].jitter_s ** 2 for place, units in self._unit))

    def _play(self, seconds: float, until_passes: float | None) -> _Rates:
        """Nothing but the mean of what held; the program went on for so long."""
        now, left_s, first = self._at, seconds, self._rates()
        rates, total = first, 0.0
        sums = np.zeros(6)
        while left_s > 1e-9:
            rates = self._rates()
            thermal = self.program.model.thermal
            steady_c = thermal.steady_c(rates.power_w)
            moving = abs(steady_c - now.temperature_c) > _STEADY_K
            interval_s = min(left_s, _INTERVAL_S) if moving else left_s
            unit_slower, slower = self._waits(interval_s, rates)
            if until_passes is not None:
                interval_s = min(interval_s, max((until_passes - now.passes) * rates.pass_s * slower, 1e-6))
            now.passes += interval_s / (rates.pass_s * slower)
            now.time_s += interval_s
            now.luck_s += interval_s * (1.0 - 1.0 / slower)
            now.energy_j += rates.power_w * interval_s
            now.temperature_c = steady_c + (now.temperature_c - steady_c) * exp(-interval_s / thermal.tau_s)
            sums += interval_s * np.array(
                (
                    rates.pass_s * slower,
                    rates.power_w,
                    rates.unit_s * unit_slower,
                    rates.busy,
                    rates.traffic,
                    rates.sm_mhz,
                )
            )
            total += interval_s
            left_s -= interval_s
            if until_passes is not None and now.passes >= until_passes * (1 - 1e-12):
                break
        return _Rates(*(sums / total).tolist()) if total else first

    def _waits(self, interval_s: float, rates: _Rates) -> tuple[float, float]:
        """By which factors the units of a stretch, and its passes, took longer than their mean.

        What is seen is the unit; checkpoints and evaluations that are not part of it scatter by themselves.
        """
        if not self._noisy:
            return 1.0, 1.0
        program, passes = self.program, max(interval_s / rates.pass_s, 1e-3)
        variance = [units * program.parts[place].jitter_s ** 2 for place, units in program.order]
        inside = {place for place, _ in self._unit}
        seen = sum(each for each, (place, _) in zip(variance, program.order, strict=True) if place in inside)
        draws = self._random.standard_normal(2) / sqrt(passes)
        seen_off, other_off = float(draws[0]) * sqrt(seen), float(draws[1]) * sqrt(sum(variance) - seen)
        share = self._seen_share(rates)
        unit_slower = 1.0 + seen_off / (rates.pass_s * share)
        return max(unit_slower, 0.5), max(1.0 + (seen_off + other_off) / rates.pass_s, 0.5)

    def _seen_share(self, rates: _Rates) -> float:
        """The part of a pass that consists of units which are seen."""
        program = self.program
        counts = [sum(units for place, units in order if place == 0) for order in (program.order, self._unit)]
        return min(counts[0] / counts[1] * rates.unit_s / rates.pass_s, 1.0)

    def _rates(self) -> _Rates:
        now, program = self._at, self.program
        row, columns = program.columns(now.setting, now.temperature_c)
        factor = program.leak_factor(now.temperature_c)
        pass_s = energy_j = busy_s = traffic_s = 0.0
        for place, units in program.order:
            part, column = program.parts[place], columns[place]
            part_s = units * float(part.time_s[row][column])
            pass_s += part_s
            energy_j += part_s * (float(part.power_w[row][column]) + float(program.leak_w[row][column]) * factor)
            busy_s += part_s * float(part.busy[row][column])
            traffic_s += part_s * float(part.traffic[row][column])
        unit_s = sum(units * float(program.parts[place].time_s[row][columns[place]]) for place, units in self._unit)
        sm_mhz = float(program.model.clocks[row].sm_mhz[columns[0]])
        return _Rates(pass_s, energy_j / pass_s, unit_s, busy_s / pass_s, traffic_s / pass_s, sm_mhz)

    def _seen(self, order: Order, *, start_s: float, cost: Measurement, settling: Measurement, mean: _Rates) -> Window:
        step_time_s, step_time_error_s = self._step_time(mean, cost.time_s)
        busy, traffic = self._shares(order.setting, mean, cost.time_s)
        row, columns = self.program.columns(order.setting, self._at.temperature_c)
        looks = order.purpose is Purpose.REFERENCE
        period_s = self.spec.sensors.counter_period_s or 0.1
        share = hypot(_COUNTER_ERROR, period_s / max(cost.time_s, period_s) * 0.3)
        off = share * float(self._random.standard_normal()) if self._noisy else 0.0
        seen = Measurement(cost.time_s, max(cost.energy_j * (1 + off), 0.0), None, SIGMAS_95 * share * cost.energy_j)
        return Window(
            setting=order.setting,
            purpose=order.purpose,
            start_s=start_s,
            cost=seen,
            settling=settling,
            step_time_s=step_time_s,
            step_time_error_s=step_time_error_s,
            sm_util=busy,
            mem_util=traffic,
            sm_mhz=mean.sm_mhz,
            features=counters(self.program, row, columns[0]) if looks else {},
        )

    def _step_time(self, mean: _Rates, window_s: float) -> tuple[float | None, float | None]:
        least = LEAST_UNITS if self._known else FIRST_UNITS
        if self.observation.unit is None or window_s < least * mean.unit_s:
            return None, None
        self._known = True
        waits, sensor = self.observation.spread(mean.unit_s, self._jitter_s(), window_s)
        if not self._noisy:
            return mean.unit_s, SIGMAS_95 * mean.unit_s * hypot(waits, sensor)
        draw, trust = self._random.standard_normal(2)
        step_time_s = mean.unit_s * (1.0 + sensor * float(draw))
        if self._random.random() < WRONG:
            step_time_s *= self._random.choice((0.5, 2.0))
        return step_time_s, SIGMAS_95 * step_time_s * hypot(waits, sensor) * exp(_TRUST * float(trust))

    def _shares(self, setting: Setting, mean: _Rates, window_s: float) -> tuple[float, float]:
        """Busy shares of the cores and of the memory, as the driver counts them."""
        if not self._noisy:
            return mean.busy, mean.traffic
        if setting not in self._offsets:
            one, two = (UTIL_SETTING / 100 * self._random.standard_normal(2)).tolist()
            self._offsets[setting] = (one, two)
        samples = max(window_s / UTIL_PERIOD_S, 1.0)
        rounding = 0.01 / sqrt(12.0 * samples)
        draws = rounding * self._random.standard_normal(2)
        offsets = self._offsets[setting]
        busy = mean.busy * self._gain + offsets[0] + float(draws[0])
        traffic = mean.traffic * self._gain + offsets[1] + float(draws[1])
        return min(max(busy, 0.0), 1.0), min(max(traffic, 0.0), 1.0)


def _since(before: Measurement, after: Measurement) -> Measurement:
    return Measurement(max(after.time_s - before.time_s, 0.0), max(after.energy_j - before.energy_j, 0.0))
