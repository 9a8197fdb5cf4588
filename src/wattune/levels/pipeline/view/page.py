"""The page of a pipeline's frontier: its savings, the chosen plan beside the default as SVG, and every plan."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from html import escape

from wattune.core.frontier import Trial
from wattune.core.measurement import Measurement, energy_percent, time_percent
from wattune.core.tariff import Footprint, Tariff
from wattune.levels.pipeline.planned import PlannedPipeline, gap_percent
from wattune.levels.pipeline.view.timeline import Bar, PipelineTimeline, Timelines, timelines
from wattune.physics.catalog import trust_of
from wattune.plans.plan import Plan
from wattune.render.chart import Axis, Chart, Mark, Note, Point, Series, Tone, default_series, tick_labels, ticks
from wattune.render.frame import LINE_PX, TITLE_PX, text_width
from wattune.render.page import Drawing, Figure, Figures, LargeChart, Page, Prose, Table
from wattune.render.palette import ink_on, scale_colour
from wattune.render.quantity import changes, footprint_words, percent, quantity, unit_for
from wattune.render.svg import STYLE as CHART_STYLE


def pipeline_page(planned: PlannedPipeline, *, made: str, tariff: Tariff) -> Page:
    """Make the page of a frontier; `made` is its last line."""
    cost = planned.plan.cost
    return Page(
        title=f"Pipeline plan: {planned.shape}",
        lead=(
            f"The chosen plan takes {cost.time_s:.4g} s and {quantity(cost.energy_j, 'J')} per iteration: "
            f"{_changes(planned.plan, planned)} against {planned.baseline}, by {planned.source.file}."
        ),
        simulated=planned.source.simulated,
        trust=trust_of(planned.source.simulated, planned.source.gpu),
        sections=(
            Figures((*_figures(planned), job_figure(planned), long_run_figure(planned, tariff))),
            Drawing(draw_timelines(timelines(planned)), TIMELINE_STYLE),
            LargeChart(plans_chart(planned)),
            _table(planned),
            Prose("Where the numbers come from", _origins(planned)),
        ),
        foot=made,
    )


def plans_chart(planned: PlannedPipeline) -> Chart:
    """Plot energy against time: the plans, their bounds, and the default."""
    default, plan = planned.default.cost, planned.plan.cost
    seconds, joules = unit_for((default.time_s,), "s"), unit_for((default.energy_j,), "J")

    def place(time_s: float, energy_j: float) -> tuple[float, float]:
        return time_s * seconds.factor, energy_j * joules.factor

    def measured(cost: Measurement) -> Point:
        return Point(*place(cost.time_s, cost.energy_j), f"{cost.time_s:.4g} s, {quantity(cost.energy_j, 'J')}")

    bounds = tuple(Point(*place(trial.cost.time_s, trial.choice.bound_j)) for trial in planned.frontier)
    return Chart(
        title="Time-energy frontier of one iteration",
        subtitle=f"{'simulated; ' if planned.source.simulated else ''}left is faster, down is cheaper",
        x=Axis(title="time per iteration", unit=seconds.symbol),
        y=Axis(title="energy per iteration", unit=joules.symbol),
        series=(
            Series(
                name="plans",
                points=tuple(measured(trial.cost) for trial in planned.frontier),
                mark=Mark.LINE_AND_POINTS,
                tone=Tone.BLUE,
            ),
            Series(name="no plan can lie below", points=bounds, tone=Tone.GREY, dashed=True),
            default_series("default settings", measured(default)),
        ),
        notes=(
            Note(*place(default.time_s, default.energy_j), "default"),
            Note(*place(plan.time_s, plan.energy_j), "chosen plan", _changes(planned.plan, planned)),
        ),
    )


def _figures(planned: PlannedPipeline) -> tuple[Figure, ...]:
    default, cheapest = planned.default.cost, planned.frontier.cheapest
    gaps = [gap_percent(trial) for trial in planned.frontier]

    def saving(trial: Trial[Plan], words: str) -> Figure:
        slower = f"time {percent(time_percent(trial.cost, default))}"
        return Figure(percent(energy_percent(trial.cost, default)), words, slower)

    return (
        saving(planned.plan, "energy with the chosen plan"),
        saving(cheapest, "energy at the least"),
        Figure(
            quantity(default.energy_j, "J"), "per iteration by default, one GPU of each rank", f"{default.time_s:.4g} s"
        ),
        Figure(f"{sum(gaps) / len(gaps):.2f} %", "above the bound, on average", f"{max(gaps):.2f} % at worst"),
    )


def job_figure(planned: PlannedPipeline) -> Figure:
    """Show what all GPUs of the job spend in an iteration of the chosen plan."""
    words = f"per iteration of all {planned.gpus} GPUs, with the chosen plan"
    default = f"{quantity(planned.job_default_energy_j, 'J')} by default"
    return Figure(quantity(planned.job_energy_j, "J"), words, default)


def long_run_saving(planned: PlannedPipeline, tariff: Tariff) -> Footprint:
    """Return what the chosen plan saves in work that takes 1,000 GPU-hours at default settings."""
    default, plan = planned.default.cost, planned.plan.cost
    power_w = default.power_w / planned.shape.ranks
    return tariff.in_the_long_run(1 - plan.energy_j / default.energy_j, power_w, started_at=datetime.now(UTC))


def long_run_figure(planned: PlannedPipeline, tariff: Tariff) -> Figure:
    """Return the same as a figure of a page."""
    default, plan = planned.default.cost, planned.plan.cost
    saved = long_run_saving(planned, tariff)
    detail = f"computed for the chosen plan, time {percent(time_percent(plan, default))}"
    return Figure(footprint_words(saved), "saved per 1,000 GPU-hours", detail)


def _table(planned: PlannedPipeline) -> Table:
    rows = []
    for number, trial in enumerate(planned.frontier):
        cost, default = trial.cost, planned.default.cost
        cells = (f"{cost.time_s:.4f} s", f"{cost.energy_j:.1f} J", f"{trial.choice.bound_j:.1f} J")
        differ = (percent(time_percent(cost, default)), percent(energy_percent(cost, default)))
        name = "chosen" if number == planned.chosen else ""
        rows.append((str(number), name, *cells, f"{gap_percent(trial):z.2f} %", *differ))
    head = ("plan", "", "time", "energy", "bound", "above bound", "Δ time", "Δ energy")
    return Table("Every plan", head, tuple(rows), words=2, strong=frozenset({planned.chosen}))


def _origins(planned: PlannedPipeline) -> tuple[str, ...]:
    return (
        f"Time and energy of each instruction at each setting come from {planned.source.file}; an instruction starts "
        f"as soon as the schedule lets it, and a rank that waits draws {planned.blocking_power_w:g} W.",
        "The bound is the optimum of the relaxed problem, in which an instruction may last anywhere between two of its "
        "options: no plan that takes as long spends less, so a better planner could gain at most the distance to it.",
        f"Δ is against {planned.baseline}. Energies are those of one GPU of each rank, unless all GPUs are named.",
    )


def _changes(trial: Trial[Plan], planned: PlannedPipeline) -> str:
    default = planned.default.cost
    return changes(time_percent(trial.cost, default), energy_percent(trial.cost, default))


TIMELINE_STYLE = (
    CHART_STYLE
    + """
.timeline .bar{stroke:var(--paper);stroke-width:.6}
.timeline .bar:hover{stroke:var(--ink);stroke-width:1.4}
.timeline .mb{font-size:9px;text-anchor:middle;pointer-events:none}
.timeline .head{font-weight:600;fill:var(--ink)}
.timeline .hatch{stroke:var(--quiet);stroke-width:1;stroke-opacity:.45}
.timeline .lane{fill:var(--panel)}
.timeline .end{stroke:var(--ink);stroke-width:1.2;stroke-dasharray:3 3}
""".replace("\n", "")
)

_GAP_PX = 4.0
_HEIGHTS = {"forward": 0.62, "recompute": 0.8, "weight": 0.8}
"""Heights relative to a backward, because colours already stand for clocks."""
_TINY_PX = 0.8
"""Bars narrower than this are drawn as one."""


@dataclass(frozen=True, slots=True)
class _TimeScale:
    """Places of times and rows on the drawing."""

    width: float
    left: float
    row_px: float
    end_s: float

    def x(self, time_s: float) -> float:
        return self.left + time_s / self.end_s * (self.width - self.left - 10)


def draw_timelines(view: Timelines, *, width: float = 1040) -> str:
    """Draw the timelines as an SVG element whose colours come from `TIMELINE_STYLE`."""
    ranks = max(len(line.ranks) for line in view.lines)
    scale = _TimeScale(width, 52.0, min(max(300 / ranks, 9.0), 26.0), view.end_s or 1.0)
    top = 2 * LINE_PX + 30
    parts: list[str] = [_hatch(), *_svg_legend(view, width)]
    for line in view.lines:
        parts += _panel(view, line, scale, top)
        top += LINE_PX + len(line.ranks) * (scale.row_px + _GAP_PX) + 22
    parts += _axis(scale, top - 16)
    height = top + 2 * LINE_PX
    label = escape("; ".join(view.heading(line) for line in view.lines), quote=True)
    box = f'viewBox="0 0 {width:g} {height:g}" role="img" aria-label="{label}"'
    return f'<svg class="chart timeline" xmlns="http://www.w3.org/2000/svg" {box}>\n' + "\n".join(parts) + "\n</svg>"


def standalone_timelines(view: Timelines, *, width: float = 1040) -> str:
    """Draw the timelines as an SVG file of its own, with a margin."""
    element = draw_timelines(view, width=width)
    opening, rest = element.split("\n", 1)
    height = float(opening.split('viewBox="0 0 ')[1].split('"')[0].split()[1])
    outer = f'viewBox="-20 -16 {width + 40:g} {height + 24:g}"'
    sized = opening.replace(f'viewBox="0 0 {width:g} {height:g}"', outer)
    sized = sized.replace("<svg ", f'<svg width="{width + 40:g}" height="{height + 24:g}" ', 1)
    paper = '<rect x="-20" y="-16" width="100%" height="100%" fill="var(--paper)"/>'
    return f"{sized}\n<style>{TIMELINE_STYLE}</style>\n{paper}\n{rest}\n"


def _hatch() -> str:
    line = '<path class="hatch" d="M-1 6L6 -1M3 9L9 3M-1 1L1 -1"/>'
    return f'<defs><pattern id="waits" width="7" height="7" patternUnits="userSpaceOnUse">{line}</pattern></defs>'


def _svg_legend(view: Timelines, width: float) -> Iterator[str]:
    title = "One iteration, rank by rank" + (" (simulated)" if view.simulated else "")
    yield f'<text class="title" x="0" y="{TITLE_PX:g}">{title}</text>'
    y = TITLE_PX + LINE_PX + 2
    clocks = view.clocks_mhz
    x = 0.0
    if clocks:
        low, high = f"{clocks[0]} MHz", f"{clocks[-1]} MHz"
        yield f'<text x="0" y="{y:g}">{low}</text>'
        x = text_width(low) + 14
        for step in range(24):
            place = f'x="{x + step * 5:.1f}" y="{y - 10:.1f}" width="5.3" height="12"'
            yield f'<rect {place} fill="{scale_colour(step / 23)}"/>'
        x += 126
        yield f'<text x="{x:.1f}" y="{y:g}">{high}</text>'
        x += text_width(high) + 22
    for words in _instructions(view):
        height = 12 * _HEIGHTS.get(words, 1.0)
        yield f'<rect x="{x:.1f}" y="{y + 2 - height:.1f}" width="14" height="{height:g}" fill="var(--quiet)"/>'
        yield f'<text x="{x + 20:.1f}" y="{y:g}">{escape(words)}</text>'
        x += 20 + text_width(words) + 20
    if x + 90 < width:
        yield f'<rect class="lane" x="{x:.1f}" y="{y - 10:.1f}" width="22" height="12"/>'
        yield f'<rect x="{x:.1f}" y="{y - 10:.1f}" width="22" height="12" fill="url(#waits)"/>'
        yield f'<text x="{x + 28:.1f}" y="{y:g}">waits</text>'


def _instructions(view: Timelines) -> list[str]:
    return list(dict.fromkeys(bar.instruction for rank in view.lines[0].ranks for bar in rank))


def _panel(view: Timelines, line: PipelineTimeline, scale: _TimeScale, top: float) -> Iterator[str]:
    yield f'<text class="head" x="0" y="{top:.1f}">{escape(view.heading(line))}</text>'
    wide = scale.x(line.cost.time_s) - scale.left
    for number, rank in enumerate(line.ranks):
        y = top + 9 + number * (scale.row_px + _GAP_PX)
        size = f'x="{scale.left:.1f}" y="{y:.1f}" width="{wide:.1f}" height="{scale.row_px:.1f}"'
        place = f'x="{scale.left - 8:.1f}" y="{y + scale.row_px / 2 + 4:.1f}"'
        yield f'<text {place} text-anchor="end">rank {number}</text>'
        yield f'<rect class="lane" {size}/><rect {size} fill="url(#waits)"/>'
        for bars in _together(rank, scale):
            yield _bar(view, bars, scale, y)
    end, bottom = scale.x(line.cost.time_s), top + 9 + len(line.ranks) * (scale.row_px + _GAP_PX)
    yield f'<line class="end" x1="{end:.1f}" y1="{top + 5:.1f}" x2="{end:.1f}" y2="{bottom:.1f}"/>'


def _together(rank: tuple[Bar, ...], scale: _TimeScale) -> Iterator[tuple[Bar, ...]]:
    """Join bars that are too narrow to be visible with the ones after them."""
    run: list[Bar] = []
    for bar in rank:
        run.append(bar)
        if scale.x(run[-1].end_s) - scale.x(run[0].start_s) >= _TINY_PX:
            yield tuple(run)
            run = []
    if run:
        yield tuple(run)


def _bar(view: Timelines, bars: tuple[Bar, ...], scale: _TimeScale, y: float) -> str:
    """Draw one bar, or several as one in the colour of the last."""
    first, last = bars[0], bars[-1]
    share = view.share(last.setting)
    height = scale.row_px * _HEIGHTS.get(last.instruction, 1.0)
    left, right = scale.x(first.start_s), scale.x(last.end_s)
    tip = last.tip if len(bars) == 1 else f"{len(bars)} instructions, {first.name} to {last.name}"
    size = f'x="{left:.2f}" y="{y + scale.row_px - height:.1f}" width="{right - left:.2f}" height="{height:.1f}"'
    drawn = f'<rect class="bar" {size} fill="{scale_colour(share)}"><title>{escape(tip)}</title></rect>'
    if height < scale.row_px:
        # The rank is busy during a low bar too, so the hatching of waiting is covered above it.
        above = f'y="{y:.1f}" width="{right - left:.2f}" height="{scale.row_px - height:.1f}"'
        drawn = f'<rect class="lane" x="{left:.2f}" {above}/>{drawn}'
    if len(bars) == 1 and text_width(last.label, size_px=10) + 1 <= right - left and height >= 9:
        place = f'x="{(left + right) / 2:.1f}" y="{y + scale.row_px - height / 2 + 3.2:.1f}"'
        drawn += f'<text class="mb" style="fill:{ink_on(share)}" {place}>{escape(last.label)}</text>'
    return drawn


def _axis(scale: _TimeScale, y: float) -> Iterator[str]:
    values = ticks(0.0, scale.end_s, about=max(int((scale.width - scale.left) / 100), 2))
    yield f'<line class="axis" x1="{scale.left:.1f}" y1="{y:.1f}" x2="{scale.x(scale.end_s):.1f}" y2="{y:.1f}"/>'
    for value, label in zip(values, tick_labels(values), strict=True):
        x = scale.x(value)
        yield f'<line class="axis" x1="{x:.1f}" y1="{y:.1f}" x2="{x:.1f}" y2="{y + 4:.1f}"/>'
        words = f"{label} s" if value == values[-1] else label
        yield f'<text x="{x:.1f}" y="{y + LINE_PX:.1f}" text-anchor="middle">{words}</text>'
