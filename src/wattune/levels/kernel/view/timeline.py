"""Pipelines as timelines: what each rank runs when and at which clock, and where it waits; drawn as SVG."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from html import escape

from wattune.core.frontier import Trial
from wattune.core.measurement import Measurement
from wattune.core.plan import Plan
from wattune.core.setting import Setting
from wattune.levels.kernel.planned import PlannedPipeline
from wattune.render.chart import tick_labels, ticks
from wattune.render.frame import LINE_PX, TITLE_PX, text_width
from wattune.render.palette import ink_on, scale_colour
from wattune.render.quantity import percent, quantity
from wattune.render.svg import STYLE as CHART_STYLE


@dataclass(frozen=True, slots=True)
class Bar:
    """One operation on the timeline of its rank."""

    name: str
    start_s: float
    end_s: float
    setting: Setting
    energy_j: float

    @property
    def instruction(self) -> str:
        return self.name.partition(" ")[0]

    @property
    def label(self) -> str:
        """The number of its microbatch, or its name where it has none."""
        return self.name.rpartition(".")[2] if "." in self.name else self.name

    @property
    def tip(self) -> str:
        took = quantity(self.end_s - self.start_s, "s")
        return f"{self.name}: {self.setting}, {took}, {quantity(self.energy_j, 'J')}, from {self.start_s:.3f} s"


@dataclass(frozen=True, slots=True)
class PipelineTimeline:
    """One iteration: the bars of each rank in order, and the cost of the whole."""

    title: str
    ranks: tuple[tuple[Bar, ...], ...]
    cost: Measurement

    @property
    def busy_percent(self) -> float:
        """The share of all ranks' time in which they run something."""
        busy_s = sum(bar.end_s - bar.start_s for rank in self.ranks for bar in rank)
        whole_s = len(self.ranks) * self.cost.time_s
        return 100 * busy_s / whole_s if whole_s else 0.0


@dataclass(frozen=True, slots=True)
class Timelines:
    """Timelines under each other on one scale of time and of clocks; the others are compared with the first."""

    lines: tuple[PipelineTimeline, ...]
    simulated: bool = False
    clocks_mhz: tuple[int, ...] = field(init=False, compare=False)
    """Every clock in use, rising."""

    def __post_init__(self) -> None:
        bars = (bar for line in self.lines for rank in line.ranks for bar in rank)
        clocks = sorted({bar.setting.sm_mhz for bar in bars if bar.setting.sm_mhz is not None})
        object.__setattr__(self, "clocks_mhz", tuple(clocks))

    @property
    def end_s(self) -> float:
        return max(line.cost.time_s for line in self.lines)

    def share(self, setting: Setting) -> float:
        """Where a setting lies from the lowest clock (0) to the highest (1); an unset clock counts as the highest."""
        clocks = self.clocks_mhz
        if setting.sm_mhz is None or not clocks or clocks[0] == clocks[-1]:
            return 1.0
        return (setting.sm_mhz - clocks[0]) / (clocks[-1] - clocks[0])

    def heading(self, line: PipelineTimeline) -> str:
        """Describe a timeline: time, energy, and the difference to the first."""
        first, cost = self.lines[0].cost, line.cost
        words = f"{line.title}: {cost.time_s:.4g} s, {quantity(cost.energy_j, 'J')}"
        if line is not self.lines[0]:
            energy = percent(100 * (cost.energy_j / first.energy_j - 1))
            words += f" ({energy} energy, {percent(100 * (cost.time_s / first.time_s - 1))} time)"
        return f"{words}, busy {line.busy_percent:.0f} %"


def timeline(title: str, trial: Trial[Plan]) -> PipelineTimeline:
    """Lay out a plan in time: every operation starts as soon as it may."""
    plan = trial.choice
    ends_s = plan.graph.finish_times_s(plan.durations_s)
    parts = zip(plan.graph.operations, ends_s, plan.durations_s, plan.choices, plan.energies_j, strict=True)
    bars = [
        Bar(operation.name, end_s - duration_s, end_s, choice.setting, energy_j)
        for operation, end_s, duration_s, choice, energy_j in parts
    ]
    return PipelineTimeline(
        title, tuple(tuple(bars[place] for place in rank) for rank in plan.graph.by_rank), trial.cost
    )


def timelines(planned: PlannedPipeline) -> Timelines:
    """Show the default above and the chosen plan below."""
    lines = (timeline("default", planned.default), timeline(f"plan {planned.chosen}", planned.plan))
    return Timelines(lines, planned.source.simulated)


STYLE = (
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
    """Where times and rows lie on the drawing."""

    width: float
    left: float
    row_px: float
    end_s: float

    def x(self, time_s: float) -> float:
        return self.left + time_s / self.end_s * (self.width - self.left - 10)


def draw_timelines(view: Timelines, *, width: float = 1040) -> str:
    """Draw the timelines as an SVG element whose colours come from `STYLE`."""
    ranks = max(len(line.ranks) for line in view.lines)
    scale = _TimeScale(width, 52.0, min(max(300 / ranks, 9.0), 26.0), view.end_s or 1.0)
    top = 2 * LINE_PX + 30
    parts: list[str] = [_hatch(), *_legend(view, width)]
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
    return f"{sized}\n<style>{STYLE}</style>\n{paper}\n{rest}\n"


def _hatch() -> str:
    line = '<path class="hatch" d="M-1 6L6 -1M3 9L9 3M-1 1L1 -1"/>'
    return f'<defs><pattern id="waits" width="7" height="7" patternUnits="userSpaceOnUse">{line}</pattern></defs>'


def _legend(view: Timelines, width: float) -> Iterator[str]:
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
