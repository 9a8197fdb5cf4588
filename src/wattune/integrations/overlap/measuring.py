"""Measures a partition or a pass on the devices of all ranks at once.

All ranks decide from the same numbers, exchanged after each window, so that they run equally many repetitions. What
fails on one rank is an error on all.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf, isfinite

from wattune.control.ranks import Alone, Numbers, Ranks
from wattune.core.errors import DeviceError
from wattune.core.measurement import Measurement
from wattune.core.setting import Setting
from wattune.devices.gpu import Gpu
from wattune.devices.meter import measured
from wattune.integrations.overlap.repeating import PartitionRunner, PassRunner, Repeat
from wattune.integrations.overlap.trial_windows import TrialRule, TrialWindow, is_cool, next_repeats, result_of
from wattune.levels.overlap.space import PartitionChoice
from wattune.levels.overlap.trial_file import MeasuredRuns, PartitionTrial, PassChoice, PassTrial


def measure_partition(
    partitions: PartitionRunner,
    partition: str,
    choice: PartitionChoice,
    gpu: Gpu,
    *,
    ranks: Ranks | None = None,
    start_c: float | None = None,
    rule: TrialRule | None = None,
) -> PartitionTrial:
    """Repeat one partition under a choice, on all ranks at once, and return what one run takes on each GPU.

    `start_c` is the temperature at which the first trial started; the trial waits until the GPUs are as cool. The
    clock of the choice stays set.
    """
    runs = measure_runs(
        lambda: partitions.prepare(partition, choice),
        partition,
        choice.sm_mhz,
        gpu,
        wait=partitions.wait,
        ranks=ranks,
        start_c=start_c,
        rule=rule,
    )
    return PartitionTrial(partition=partition, choice=choice, **runs.fields)


def measure_pass(
    passes: PassRunner,
    choice: PassChoice,
    gpu: Gpu,
    *,
    ranks: Ranks | None = None,
    start_c: float | None = None,
    rule: TrialRule | None = None,
) -> PassTrial:
    """Repeat a whole pass, as `measure_partition` does with a partition."""
    runs = measure_runs(
        lambda: passes.prepare(choice),
        choice.instruction,
        choice.sm_mhz,
        gpu,
        wait=passes.wait,
        ranks=ranks,
        start_c=start_c,
        rule=rule,
    )
    return PassTrial(choice=choice, layers=passes.layers, recompute=passes.recompute, **runs.fields)


def measure_runs(
    prepare: Callable[[], Repeat],
    name: str,
    sm_mhz: int,
    gpu: Gpu,
    *,
    wait: Callable[[float], None],
    ranks: Ranks | None,
    start_c: float | None,
    rule: TrialRule | None,
) -> MeasuredRuns:
    """Repeat what is prepared at a clock, on all ranks at once, and return what one run takes on each GPU."""
    rule = rule or TrialRule()
    shared = _SharedTrial(gpu, ranks or Alone(), wait, rule)
    repeat = shared.prepare(prepare, sm_mhz)
    cooling_s, before_c = shared.cool(start_c)
    windows: tuple[TrialWindow, ...] = ()
    while (result := result_of(windows, rule)) is None:
        windows = (*windows, shared.window(repeat, next_repeats(windows, rule)))
    cost = result.cost / result.repeats
    if not (cost.time_s > 0 and cost.energy_j > 0):
        raise DeviceError(
            f"no time or energy passes on {gpu.spec.label} while {name} runs", hint="see `wattune doctor`"
        )
    return MeasuredRuns(
        cost=cost,
        repeats=result.repeats,
        cooling_s=cooling_s,
        window_s=sum(window.cost.time_s for window in windows),
        start_c=before_c,
        end_c=shared.warmest_c(),
        simulated=gpu.spec.simulated,
    )


class _SharedTrial:
    """One trial on all ranks: each step returns the same on all of them, or raises on all of them."""

    def __init__(self, gpu: Gpu, ranks: Ranks, wait: Callable[[float], None], rule: TrialRule) -> None:
        self._gpu, self._ranks, self._wait, self._rule = gpu, ranks, wait, rule

    def prepare(self, prepare: Callable[[], Repeat], sm_mhz: int) -> Repeat:
        """Set the clock and run what is measured once."""
        prepared: list[Repeat] = []

        def start() -> Numbers:
            self._gpu.apply(Setting(sm_mhz))
            prepared.append(prepare())
            prepared[0](1)
            return ()

        self._exchanged(start, 0)
        return prepared[0]

    def cool(self, start_c: float | None) -> tuple[float, float | None]:
        """Wait until the warmest GPU is cool enough; return for how long, and its temperature."""
        found: tuple[float, ...] = ()
        while True:
            warmest_c = self.warmest_c()
            if warmest_c is None:
                return 0.0, None
            found = (*found, warmest_c)
            if is_cool(found, self._rule, start_c=start_c):
                return (len(found) - 1) * self._rule.cooling_step_s, warmest_c
            self._wait(self._rule.cooling_step_s)

    def window(self, repeat: Repeat, repeats: int) -> TrialWindow:
        """Measure so many repetitions: the longest time, and mean energy and error of all GPUs."""

        def measure() -> Numbers:
            with measured(self._gpu, wait=self._wait) as span:
                repeat(repeats)
            cost = span.measurement
            return cost.time_s, cost.energy_j, cost.energy_error_j or 0.0

        (_, *energies_j), (time_s, *_) = self._exchanged(measure, 3)
        energy_j, error_j = (total_j / self._ranks.size for total_j in energies_j)
        return TrialWindow(repeats, Measurement(time_s, energy_j, None, error_j))

    def warmest_c(self) -> float | None:
        """Return the highest temperature of all ranks, or None where one does not show it."""

        def read() -> Numbers:
            found = self._gpu.read().temperature_c
            return (inf if found is None else found,)

        _, (warmest_c,) = self._exchanged(read, 1)
        return warmest_c if isfinite(warmest_c) else None

    def _exchanged(self, make: Callable[[], Numbers], size: int) -> tuple[Numbers, Numbers]:
        """Return sums and maxima over all ranks of what each of them makes; raise where one of them failed."""
        values, failure = (0.0,) * size, None
        try:
            values = make()
        except Exception as error:  # whatever it is, the other ranks must learn of it
            failure = error
        try:
            sums, maxima = self._ranks.sum_and_max((float(failure is not None), *values))
        except Exception as error:
            raise failure or error from None
        if failure is not None:
            raise failure
        if maxima[0] > 0:
            raise DeviceError("the measurement failed on another rank", hint="see the output of that rank")
        return sums[1:], maxima[1:]
