"""What repeats in the power of a program, as the tuning of a run needs it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from wattune.core.gpu_spec import Sensors
from wattune.signals.period import PeriodAnswer, Verdict, find_period
from wattune.signals.samples import PowerSamples

FindPeriod = Callable[[PowerSamples], PeriodAnswer]


def period_finder(sensor: Sensors) -> FindPeriod:
    """What finds periods in samples of a part with these sensors."""
    return lambda samples: find_period(samples, sensor=sensor)


def periods_of(answer: PeriodAnswer) -> Sequence[tuple[float, float | None]]:
    """The periods of an answer, each with its error: that of the step first, then all others."""
    if answer.verdict is not Verdict.PERIODIC or answer.period_s is None:
        return ()
    others = [(cycle.period_s, cycle.error_s) for cycle in answer.cycles if cycle.period_s != answer.period_s]
    return ((answer.period_s, answer.error_s), *others)
