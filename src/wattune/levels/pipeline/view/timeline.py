"""One iteration of a pipeline as timelines: when and at which clock each rank runs what, and where it waits.

In a terminal a timeline has a row per rank and a character per interval of time. With colours a cell has the colour of
its clock and a bar the number of its microbatch; without, a taller block is a higher clock.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby

from rich.text import Text

from wattune.core.frontier import Trial
from wattune.core.measurement import Measurement, energy_percent, time_percent
from wattune.core.setting import Setting
from wattune.levels.pipeline.planned import PlannedPipeline
from wattune.plans.plan import Plan
from wattune.render.chart import tick_labels, ticks
from wattune.render.palette import ink_on, scale_colour
from wattune.render.quantity import changes, quantity


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
        """Place a setting between the lowest clock (0) and the highest (1); an unset clock counts as the highest."""
        clocks = self.clocks_mhz
        if setting.sm_mhz is None or not clocks or clocks[0] == clocks[-1]:
            return 1.0
        return (setting.sm_mhz - clocks[0]) / (clocks[-1] - clocks[0])

    def heading(self, line: PipelineTimeline) -> str:
        """Describe a timeline: time, energy, and the difference to the first."""
        first, cost = self.lines[0].cost, line.cost
        words = f"{line.title}: {cost.time_s:.4g} s, {quantity(cost.energy_j, 'J')}"
        if line is not self.lines[0]:
            words += f" ({changes(time_percent(cost, first), energy_percent(cost, first))})"
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


LEVELS = 8
_BLOCKS = "▁▂▃▄▅▆▇█"
IDLE = "·"
Run = tuple[str, str]
"""Characters and their rich style."""


def text_timelines(view: Timelines, *, width: int, coloured: bool) -> tuple[Text, ...]:
    """Draw the timelines for a terminal, with colours or without."""
    room = max(len(f"rank {len(line.ranks) - 1}") for line in view.lines) + 1
    columns = max(width - room, 10)
    row = _coloured if coloured else _heights
    lines: list[Text] = []
    for line in view.lines:
        lines.append(Text(view.heading(line), "bold"))
        for number, rank in enumerate(line.ranks):
            runs = row(view, _cells(view, line, rank, columns))
            lines.append(Text.assemble((f"{f'rank {number}':<{room}}", "dim"), *runs))
        lines.append(Text())
    lines[-1] = Text(" " * room + _axis(view.end_s, columns), "dim")
    return (*lines, _legend(view, coloured=coloured))


def _cells(view: Timelines, line: PipelineTimeline, rank: Sequence[Bar], columns: int) -> list[Bar | None]:
    """The bar that fills most of each column; None where the rank waits or has ended."""
    step_s = view.end_s / columns
    covered: list[dict[int, float]] = [{} for _ in range(columns)]
    for place, bar in enumerate(rank):
        first, last = int(bar.start_s / step_s), min(int(bar.end_s / step_s), columns - 1)
        for column in range(first, last + 1):
            part_s = min(bar.end_s, (column + 1) * step_s) - max(bar.start_s, column * step_s)
            covered[column][place] = max(part_s, 0.0)
    cells: list[Bar | None] = []
    for own in covered:
        best = max(own, key=lambda place: own[place], default=None)
        cells.append(rank[best] if best is not None and sum(own.values()) > step_s / 2 else None)
    return cells[: max(round(line.cost.time_s / step_s), 1)]


def _coloured(view: Timelines, cells: list[Bar | None]) -> Iterator[Run]:
    for bar, run in groupby(cells):
        wide = len(list(run))
        if bar is None:
            yield IDLE * wide, "dim"
        else:
            label = bar.label if len(bar.label) < wide else ""
            slant = "italic" if bar.instruction == "forward" else "bold"
            yield f"{label:^{wide}}", _clock_style(_level(view, bar), slant)


def _heights(view: Timelines, cells: list[Bar | None]) -> Iterator[Run]:
    levels = (None if bar is None else _level(view, bar) for bar in cells)
    for level, run in groupby(levels):
        sign = IDLE if level is None else _BLOCKS[level]
        yield sign * len(list(run)), "dim" if level is None else _clock_style(level)


def _level(view: Timelines, bar: Bar) -> int:
    return round(view.share(bar.setting) * (LEVELS - 1))


def _clock_style(level: int, slant: str = "bold") -> str:
    share = level / (LEVELS - 1)
    return f"{ink_on(share)} on {scale_colour(share)} {slant}"


def _axis(end_s: float, columns: int) -> str:
    values = ticks(0.0, end_s, about=max(columns // 14, 2))
    words = [" "] * columns
    for value, label in zip(values, tick_labels(values), strict=True):
        text = f"{label} s" if value == values[-1] else label
        column = max(min(int(value / end_s * columns), columns - len(text)), 0)
        words[column : column + len(text)] = text
    return "".join(words).rstrip()


def _legend(view: Timelines, *, coloured: bool) -> Text:
    clocks = view.clocks_mhz
    low, high = (f"{clocks[0]} ", f" {clocks[-1]} MHz") if clocks else ("", "default clock")
    levels = range(LEVELS) if clocks else (LEVELS - 1,)
    steps = (("  " if coloured else _BLOCKS[level], _clock_style(level)) for level in levels)
    simulated = "  (simulated)" if view.simulated else ""
    return Text.assemble(
        (low, "dim"),
        *steps,
        (f"{high}   ", "dim"),
        (IDLE * 2, "dim"),
        (f" waits{'   italic forward, bold backward' if coloured else ''}{simulated}", "dim"),
    )
