"""Charts of planned layers: the frontier of each strategy, and the clocks of a plan over a step."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby, pairwise

from wattune.core.frontier import Trial
from wattune.core.measurement import Measurement
from wattune.core.setting import Setting
from wattune.levels.layer.comparison import LayerComparison, StrategyPlans, segments_of
from wattune.levels.layer.costs import BACKWARD, FORWARD, LayerCosts
from wattune.levels.layer.planner import EXHAUSTIVE, IDEAL, INTENSITY, SEGMENTS, SINGLE
from wattune.levels.layer.switching import switches_of
from wattune.levels.layer.view.words import SCOPE_WORDS, outside_words
from wattune.plans.plan import Plan
from wattune.render.chart import (
    Axis,
    Band,
    Chart,
    Mark,
    Note,
    Point,
    ReferenceLine,
    Series,
    Shape,
    Tone,
    default_series,
)
from wattune.render.quantity import Unit, quantity, unit_for
from wattune.render.quantity import changes as percent_changes

_LEAST_REACH = 0.15
"""Slowdown up to which frontiers are drawn, or thrice the limit: slower plans would shrink the rest to a corner."""

_LOOKS: dict[str, tuple[Mark, Tone, Shape, bool]] = {
    SINGLE: (Mark.POINTS, Tone.SKY, Shape.SQUARE, False),
    INTENSITY: (Mark.LINE_AND_POINTS, Tone.PURPLE, Shape.TRIANGLE, False),
    EXHAUSTIVE: (Mark.LINE_AND_POINTS, Tone.GOLD, Shape.DIAMOND, False),
    SEGMENTS: (Mark.LINE, Tone.BLUE, Shape.CIRCLE, False),
    IDEAL: (Mark.LINE, Tone.GREEN, Shape.CIRCLE, True),
}
_PASS_TONES = {FORWARD: Tone.SKY, BACKWARD: Tone.GOLD}


def reach_of(found: LayerComparison) -> float:
    """Return the slowdown up to which frontiers are drawn."""
    return max(3 * found.verdict.slowdown, _LEAST_REACH)


def drawn_plans(found: LayerComparison, plans: StrategyPlans) -> tuple[Trial[Plan], ...]:
    """Return the plans of a strategy that a chart of frontiers shows."""
    return tuple(trial for trial in plans.frontier if found.slowdown(trial.cost) <= reach_of(found))


def strategies_chart(found: LayerComparison) -> Chart:
    """Draw energy against time, both relative to the default: the frontier of each strategy."""
    per = SCOPE_WORDS[found.scope]
    outside = [plans for plans in found.strategies if not drawn_plans(found, plans)]
    words = ["simulated"] if found.costs.simulated else []
    words += ["left is faster, down is cheaper"]
    words += [f"{plans.name}: {outside_words(plans, found.default)}" for plans in outside]
    return Chart(
        title="Time-energy frontier of each strategy",
        subtitle="; ".join(words),
        x=Axis(title=f"time of a {per} against the default", unit="%"),
        y=Axis(title=f"energy of a {per} against the default", unit="%"),
        series=(
            *(_frontier(found, plans) for plans in found.strategies if plans not in outside),
            default_series("default", Point(0.0, 0.0, _tip("default", found.default, 0.0, 0.0))),
        ),
        notes=tuple(_notes(found)),
        bands=(
            Band(0.0, 100 * found.verdict.slowdown, f"up to {100 * found.verdict.slowdown:g} % slower", Tone.GREEN),
        ),
    )


def _frontier(found: LayerComparison, plans: StrategyPlans) -> Series:
    mark, tone, shape, dashed = _LOOKS[plans.name]
    points = tuple(_point(found, trial) for trial in drawn_plans(found, plans))
    name = f"{plans.name} (upper bound)" if plans.name == IDEAL else plans.name
    return Series(name=name, points=points, mark=mark, tone=tone, shape=shape, dashed=dashed)


def changes(found: LayerComparison, cost: Measurement) -> tuple[float, float]:
    """Return the change of time and of energy against the default, in percent."""
    return 100 * found.slowdown(cost), -100 * found.verdict.saving(cost)


def _point(found: LayerComparison, trial: Trial[Plan]) -> Point:
    cost, switches = trial.cost, switches_of(trial.choice)
    what = str(trial.choice.choices[0].setting) if not switches else f"{switches} changes of clocks"
    time, energy = changes(found, cost)
    return Point(time, energy, _tip(what, cost, time, energy))


def _tip(what: str, cost: Measurement, time: float, energy: float) -> str:
    spent = f"{quantity(cost.time_s, 's')}, {quantity(cost.energy_j, 'J')}"
    return "\n".join((what, spent, percent_changes(time, energy)))


def _notes(found: LayerComparison) -> Iterator[Note]:
    """Annotate the default and the plans within the limit; a plan without changes of clocks is the single setting."""
    yield Note(0.0, 0.0, "default")
    verdict = found.verdict
    switches = verdict.segments.switches
    single = f"best single setting: {found.single_setting}"
    yield _note(found, verdict.single.cost, single if switches else f"segments and {single}")
    if switches:
        yield _note(found, verdict.segments.planned.cost, f"segments: {switches} changes of clocks")
    yield _note(found, verdict.ideal.cost, "upper bound")


def _note(found: LayerComparison, cost: Measurement, text: str) -> Note:
    time, energy = changes(found, cost)
    return Note(time, energy, text, percent_changes(time, energy))


def clock_charts(found: LayerComparison, name: str) -> tuple[Chart, ...]:
    """Draw the clocks of a strategy's plan over a step; the memory clock only where the plan changes it."""
    own, ideal = found.of(name), found.of(IDEAL)
    shown = [(own.name, own.shown)] + ([] if own is ideal else [(f"{IDEAL} (upper bound)", ideal.shown)])
    charts = [_clock_chart(found, shown, "core clock", 0)]
    if len({_clocks(found.costs, choice.setting)[1] for choice in own.shown.choice.choices}) > 1:
        charts.append(_clock_chart(found, shown, "memory clock", 1))
    return tuple(charts)


def _clock_chart(found: LayerComparison, shown: list[tuple[str, Trial[Plan]]], title: str, place: int) -> Chart:
    unit = unit_for((trial.cost.time_s for _, trial in shown), "s")
    series: list[Series] = []
    for number, (name, trial) in enumerate(shown):
        points = tuple(_steps(found.costs, trial.choice, unit, place))
        # Drawn first, the ideal plan does not hide the other, although it changes at nearly every layer.
        tone = Tone.GREY if number else Tone.BLUE
        series.insert(0, Series(name=name, points=points, mark=Mark.STEPS, tone=tone))
    default_mhz = _clocks(found.costs, found.costs.settings[0])[place]
    lowest_mhz = min((point.y for one in series for point in one.points if point.y is not None), default=0.0)
    words = f"{shown[0][0]}: {switches_of(shown[0][1].choice)} changes of clocks per {SCOPE_WORDS[found.scope]}"
    return Chart(
        title=f"{title.capitalize()} over a {SCOPE_WORDS[found.scope]}",
        subtitle=f"simulated; {words}" if found.costs.simulated else words,
        x=Axis(title=f"time in the {SCOPE_WORDS[found.scope]}", unit=unit.symbol, low=0.0),
        y=Axis(title=title, unit="MHz", low=0.6 * lowest_mhz),
        series=tuple(series),
        rules=() if default_mhz is None else (ReferenceLine(default_mhz, f"default: {default_mhz} MHz"),),
        bands=tuple(_passes(shown[0][1].choice, unit)),
    )


def _clocks(costs: LayerCosts, setting: Setting) -> tuple[int | None, int | None]:
    """Return the core and the memory clock of a setting; None where it is left to the driver and not known."""
    if costs.clocks_mhz:
        return costs.clocks_mhz[costs.settings.index(setting)]
    return setting.sm_mhz, setting.mem_mhz


def _steps(costs: LayerCosts, plan: Plan, unit: Unit, place: int) -> Iterator[Point]:
    segments = segments_of(plan)
    for segment in segments:
        yield Point(segment.start_s * unit.factor, _clocks(costs, segment.setting)[place])
    yield Point(segments[-1].end_s * unit.factor, _clocks(costs, segments[-1].setting)[place])


def _passes(plan: Plan, unit: Unit) -> Iterator[Band]:
    ends_s = [0.0, *plan.graph.finish_times_s(plan.durations_s)]
    spans = zip(pairwise(ends_s), plan.graph.operations, strict=True)
    for name, group in groupby(spans, key=lambda span: span[1].name.partition("/")[0]):
        times = [times_s for times_s, _ in group]
        tone = _PASS_TONES.get(name, Tone.PURPLE)
        yield Band(times[0][0] * unit.factor, times[-1][1] * unit.factor, name, tone)
