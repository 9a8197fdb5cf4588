"""The page of planned layers: the verdict, the frontier of each strategy, the clocks of a plan, and the rooflines."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from wattune.core.gpu_spec import labelled
from wattune.core.measurement import Measurement
from wattune.levels.layer.comparison import LATENCIES_S, LayerComparison, StrategyPlans, segments_of
from wattune.levels.layer.demand import LayerDemand, intensity
from wattune.levels.layer.planner import EXHAUSTIVE, IDEAL, INTENSITY, SEGMENTS, SINGLE
from wattune.levels.layer.switching import switches_of
from wattune.levels.layer.view.charts import SCOPE_WORDS, changes, clock_charts, strategies_chart
from wattune.levels.layer.view.result import PAYING, PlannedLayers, latency_words, verdict_sentence
from wattune.levels.layer.view.roofline import LayersAt, limit_words, roofline_charts
from wattune.physics.catalog import trust_of
from wattune.render.page import Figure, Figures, LargeChart, Page, Prose, Section, SmallCharts, Table
from wattune.render.quantity import UNKNOWN, footprint_words, number, percent, quantity

MOST_LAYERS = 15
MOST_SEGMENTS = 40


MEANINGS = {
    SINGLE: "one setting for all layers",
    INTENSITY: "by arithmetic intensity",
    EXHAUSTIVE: "each layer's own best",
    SEGMENTS: "optimum, switching charged",
    IDEAL: "upper bound: switching is free",
}
"""Each strategy in a few words."""


def layers_page(planned: PlannedLayers, *, made: str) -> Page:
    """Make the page; the clocks are those of one strategy's plan, and `made` is its last line."""
    found, costs, places = planned.found, planned.found.costs, planned.source.places
    return Page(
        title=f"Clocks per layer: {costs.workload} on {costs.gpu}",
        lead=verdict_sentence(found),
        simulated=costs.simulated,
        trust=trust_of(costs.simulated, costs.gpu),
        sections=(
            Figures((*_figures(found), _long_run(planned))),
            LargeChart(strategies_chart(found)),
            strategy_table(found),
            *(LargeChart(chart) for chart in clock_charts(found, planned.strategy)),
            *_segment_table(found.of(planned.strategy)),
            *_rooflines(found, places),
            Prose("How it was computed", tuple(_how(planned))),
        ),
        foot=made,
    )


def roofline_page(places: Sequence[LayersAt], *, workload: str, gpu: str, made: str) -> Page:
    """Make the page of the rooflines alone."""
    return Page(
        title=f"Roofline: {workload} on {gpu}",
        lead=f"On {labelled(gpu, True)}, {'; '.join(limit_words(place) for place in places)}.",
        simulated=True,
        trust=trust_of(True, gpu),
        sections=(SmallCharts(roofline_charts(places, simulated=True), height=340), layer_table(places)),
        foot=made,
    )


def _figures(found: LayerComparison) -> tuple[Figure, ...]:
    cost = found.segments.cost
    per, limit = SCOPE_WORDS[found.scope], f"{100 * found.max_slowdown:g} %"
    below = found.pays_below_s
    return (
        Figure(quantity(found.default.energy_j, "J"), f"per {per} by default", quantity(found.default.time_s, "s")),
        Figure(
            percent(-100 * found.saving(found.single)),
            f"energy at the best single setting within {limit}",
            str(found.single_setting),
        ),
        Figure(
            percent(-100 * found.saving(cost)),
            "energy with the best segments, when played",
            f"time {percent(100 * found.slowdown(cost))}, {found.segments.switches} changes of clocks",
        ),
        Figure(percent(-100 * found.saving(found.kept(IDEAL).cost)), "energy if switching were free", "upper bound"),
        Figure(
            UNKNOWN if below is None else f"≤ {latency_words(below)}",
            "switching latency at which it pays",
            f"here {latency_words(found.switching.sm_latency_s)}; tried {latency_words(LATENCIES_S[0])} to "
            f"{latency_words(LATENCIES_S[-1])}",
        ),
    )


def _long_run(planned: PlannedLayers) -> Figure:
    slower = percent(100 * planned.found.slowdown(planned.cheaper))
    detail = f"by the best single setting or segments, whichever saves more, time {slower}"
    return Figure(footprint_words(planned.saved), "saved per 1,000 GPU-hours", detail)


STRATEGY_HEAD = (
    "strategy",
    "",
    "within",
    "switches",
    "Δ time",
    "Δ energy",
    "to single",
    "played: Δ time",
    "Δ energy",
)


def strategy_table(found: LayerComparison) -> Table:
    """List the plan of each strategy within the slowdown limit, else its fastest."""
    rows = tuple(_strategy_row(found, plans) for plans in found.strategies)
    title = f"Plans within a slowdown of {100 * found.max_slowdown:g} %; of a strategy without one, its fastest"
    strong = frozenset(place for place, plans in enumerate(found.strategies) if plans.name == SEGMENTS)
    return Table(title, STRATEGY_HEAD, rows, words=3, strong=strong)


def _strategy_row(found: LayerComparison, plans: StrategyPlans) -> tuple[str, ...]:
    trial = plans.shown
    return (
        plans.name,
        MEANINGS[plans.name],
        "yes" if plans.within else "no",
        str(switches_of(trial.choice)),
        *change_cells(found, trial.cost),
        _change(-100 * found.saving_over_single(trial.cost)),
        *(change_cells(found, plans.within.cost) if plans.within and plans.name != IDEAL else (UNKNOWN, UNKNOWN)),
    )


def change_cells(found: LayerComparison, cost: Measurement) -> tuple[str, str]:
    """Return the change of time and of energy against the default; ten times and more as a factor."""
    time, energy = changes(found, cost)
    return _change(time), _change(energy)


def _change(change_percent: float) -> str:
    return percent(change_percent) if change_percent < 900 else f"× {number(1 + change_percent / 100, digits=2)}"


def _segment_table(plans: StrategyPlans) -> Iterator[Section]:
    """List the segments of a plan that changes clocks; those of very many are left to its chart."""
    segments = segments_of(plans.shown.choice)
    if not 1 < len(segments) <= MOST_SEGMENTS:
        return
    rows = tuple(
        (
            segment.first,
            segment.last,
            str(segment.setting),
            str(segment.layers),
            quantity(segment.start_s, "s"),
            quantity(segment.end_s - segment.start_s, "s"),
        )
        for segment in segments
    )
    yield Table(
        f"The plan of {plans.name}: its segments",
        ("from", "to", "setting", "layers", "start", "duration"),
        rows,
        words=3,
    )


def _rooflines(found: LayerComparison, places: Sequence[LayersAt]) -> Iterator[Section]:
    charts = roofline_charts(places, simulated=found.costs.simulated) if places else ()
    if charts:
        yield SmallCharts(charts, height=340)
    if places:
        yield layer_table(places, most=MOST_LAYERS)


def layer_table(places: Sequence[LayersAt], *, most: int | None = None) -> Table:
    """List the layers that take most of the time at the first pair of clocks, or all in order."""
    first = places[0]
    order = range(len(first.layers))
    if most is not None:
        order_by_time = sorted(order, key=lambda row: -first.layers[row].time_s)
        title = f"The {min(most, len(order))} of {len(order)} layers that take most of the time"
        chosen: Sequence[int] = order_by_time[:most]
    else:
        title, chosen = "Layers in the order in which they run", order
    others = (f"at {place.roofline.sm_mhz}/{place.roofline.mem_mhz}" for place in places[1:])
    head = ("layer", "limit", *others, "FLOP", "bytes", "FLOP/byte", "time", "ridge", "share")
    rows = tuple(_layer_row(places, row) for row in chosen)
    return Table(f"{title}, at {first.title}", head, rows, words=1 + len(places))


def _layer_row(places: Sequence[LayersAt], row: int) -> tuple[str, ...]:
    layer = places[0].layers[row]
    return (
        layer.phase.name,
        *(place.layers[row].limit.value for place in places),
        *demand_cells(layer),
        quantity(layer.time_s, "s"),
        number(places[0].roofline.ridge(layer.phase.pipe)),
        f"{100 * layer.time_s / places[0].time_s:.1f} %",
    )


def demand_cells(layer: LayerDemand) -> tuple[str, str, str]:
    """Return operations, bytes and intensity of a layer; units are in the head of the table."""
    phase = layer.phase
    known = number(intensity(phase)) if phase.dram_bytes else UNKNOWN
    return quantity(phase.flops, "").strip(), quantity(phase.dram_bytes, "").strip(), known


def _how(planned: PlannedLayers) -> Iterator[str]:
    settings = len(planned.found.costs.settings)
    yield f"Time and energy of each layer at each of {settings} settings: {planned.source.origin}."
    yield f"Cost of switching: {planned.switching_words}."
    yield (
        "A plan asks for each clock one latency ahead of the layer that needs it, so that a change costs its stall "
        "alone, as long as the segment before lasts at least one latency. A shorter segment must wait. The figures "
        "under “played” are means over steps in which every latency is longer or shorter than its median, as measured "
        "on real GPUs; a change that comes early or late runs some layers at a clock meant for others."
    )
    yield PAYING
    yield (
        "A layer is limited by compute when its arithmetic intensity lies above the ridge, the achievable rate over "
        "the achievable bandwidth, and by memory when it lies below. A lower core clock moves the ridge to the left, a "
        "lower memory clock to the right. Layers without arithmetic are not on the rooflines."
    )
