"""Detectors of change as `wattune bench change` plays them: ours, and the published rules with their own thresholds.

Both rules sleep ever longer when nothing happens; here they look at everything, which favours them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from wattune.benchmarks.change.streams import Stream
from wattune.signals.change import Look, Watch


@dataclass(frozen=True, slots=True)
class Alarm:
    """At which look a detector said that something changed, and what, where it says that."""

    place: int
    what: tuple[str, ...] | None = None


Detector = Callable[[Stream], Iterator[Alarm]]

_GPOEO_SPREAD = 0.18
"""Of per-period mean power, largest less smallest since settling over their mean, as the released code has it."""
_MF_WINDOW_S = 4.0
_MF_DISTANCE = 0.10
_MF_WINDOWS = 5


def wattune(stream: Stream) -> Iterator[Alarm]:
    """The alarms of `wattune.signals.change`."""
    watch = Watch()
    columns = (column.tolist() for column in (stream.time_s, stream.period_s, stream.power_w, stream.util))
    degrees = [None] * len(stream) if stream.temperature_c is None else stream.temperature_c.tolist()
    for place, (time_s, period_s, power_w, util, temperature_c) in enumerate(zip(*columns, degrees, strict=True)):
        look = Look(time_s=time_s, period_s=period_s, power_w=power_w, util=util, temperature_c=temperature_c)
        watch = watch.add(look)
        if watch.change is not None:
            yield Alarm(place, watch.change.what)


def gpoeo(stream: Stream) -> Iterator[Alarm]:
    """The alarms of GPOEO's rule: least and most power since settling, which never expire."""
    low = high = total = 0.0
    count = 0
    for place, power_w in enumerate(stream.power_w.tolist()):
        low, high = (min(low, power_w), max(high, power_w)) if count else (power_w, power_w)
        total, count = total + power_w, count + 1
        if (high - low) / (total / count) > _GPOEO_SPREAD:
            yield Alarm(place)
            total, count = 0.0, 0


def mf_gpoeo(stream: Stream) -> Iterator[Alarm]:
    """The alarms of MF-GPOEO's phase watch: distance of windows of 4 s from the first, in three of the last five.

    Of its five signals the two clocks stand still here, and memory utilisation follows the other one.
    """
    reference: tuple[float, float] | None = None
    far: list[bool] = []
    inside: list[tuple[float, float]] = []
    end_s = _MF_WINDOW_S
    values = zip(stream.time_s.tolist(), stream.power_w.tolist(), stream.util.tolist(), strict=True)
    for place, (time_s, power_w, util) in enumerate(values):
        inside.append((power_w, util))
        if time_s < end_s:
            continue
        window = _mean(inside)
        inside, end_s = [], time_s + _MF_WINDOW_S
        if reference is None:
            reference = window
            continue
        far = [*far, _distance(reference, window) > _MF_DISTANCE][-_MF_WINDOWS:]
        if sum(far) > _MF_WINDOWS / 2:
            yield Alarm(place)
            reference, far = None, []


DETECTORS: dict[str, Detector] = {"wattune": wattune, "gpoeo": gpoeo, "mf-gpoeo": mf_gpoeo}


def _mean(values: list[tuple[float, float]]) -> tuple[float, float]:
    return sum(power_w for power_w, _ in values) / len(values), sum(util for _, util in values) / len(values)


def _distance(first: tuple[float, float], second: tuple[float, float]) -> float:
    """The sum of differences, each over the larger; utilisation counts twice, for the memory's as well."""
    power, util = (abs(a - b) / max(a, b, 1e-9) for a, b in zip(first, second, strict=True))
    return power + 2 * util
