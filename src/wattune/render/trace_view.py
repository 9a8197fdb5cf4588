"""Power over time, as a chart and as one line of words."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from wattune.core.reading import Reading, Trace
from wattune.render.chart import Axis, Chart, Mark, Point, ReferenceLine, Series, Tone
from wattune.render.quantity import quantity

_TONES = (Tone.BLUE, Tone.ORANGE, Tone.GREEN, Tone.PURPLE, Tone.GOLD, Tone.SKY)


def power_points(readings: Iterable[Reading], *, start_s: float) -> tuple[Point, ...]:
    """Power against the time since `start_s`, with a gap where no power was told."""
    return tuple(
        Point(reading.time_s - start_s, reading.power_w, _tip(reading, reading.time_s - start_s))
        for reading in readings
    )


def trace_chart(traces: Sequence[Trace], *, title: str, subtitle: str | None = None, mark: Mark = Mark.LINE) -> Chart:
    """Power over time, a line per GPU, and each power limit that was in force as a dashed rule."""
    starts_s = [trace.readings[0].time_s for trace in traces if trace.readings]
    series = tuple(
        Series(
            name=trace.gpu,
            points=power_points(trace.readings, start_s=min(starts_s, default=0.0)),
            mark=mark,
            tone=_TONES[index % len(_TONES)],
            dashed=index >= len(_TONES),
        )
        for index, trace in enumerate(traces)
    )
    return Chart(
        title=title,
        subtitle=subtitle,
        x=Axis(title="time", unit="s"),
        y=Axis(title="power", unit="W", low=0.0),
        series=series,
        rules=tuple(ReferenceLine(limit_w, f"limit {limit_w:g} W") for limit_w in _limits_w(traces)),
    )


def trace_words(trace: Trace) -> str:
    """The trace in one line, such as `61.0 W to 301 W in 120 samples over 12.0 s, 240 W by the energy counter`."""
    powers_w = [reading.power_w for reading in trace.readings if reading.power_w is not None]
    if not powers_w:
        return f"no power told in {quantity(trace.duration_s, 's')}"
    ends = f"{quantity(min(powers_w), 'W')} to {quantity(max(powers_w), 'W')}"
    words = f"{ends} in {len(powers_w)} samples over {quantity(trace.duration_s, 's')}"
    counted_w = _counted_w(trace)
    return words if counted_w is None else f"{words}, {quantity(counted_w, 'W')} by the energy counter"


def _counted_w(trace: Trace) -> float | None:
    """Mean power from the first to the last count; None where there are no two."""
    counts = [(reading.time_s, reading.energy_j) for reading in trace.readings if reading.energy_j is not None]
    if len(counts) < 2 or counts[-1][0] <= counts[0][0]:
        return None
    return (counts[-1][1] - counts[0][1]) / (counts[-1][0] - counts[0][0])


def _limits_w(traces: Sequence[Trace]) -> list[float]:
    told = (reading.power_limit_w for trace in traces for reading in trace.readings)
    return sorted({limit_w for limit_w in told if limit_w is not None})


def _tip(reading: Reading, since_s: float) -> str:
    parts = [f"{since_s:.2f} s", quantity(reading.power_w, "W")]
    if reading.sm_mhz is not None:
        parts.append(f"{reading.sm_mhz} MHz")
    return ", ".join(parts)
