"""Timelines for a terminal: a row per rank, a character per interval of time.

With colours a cell has the colour of its clock and a bar the number of its microbatch; without, a taller block is a
higher clock.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

from rich.text import Text

from wattune.levels.kernel.view.timeline import Bar, PipelineTimeline, Timelines
from wattune.render.chart import tick_labels, ticks
from wattune.render.palette import ink_on, scale_colour

LEVELS = 8
_BLOCKS = "▁▂▃▄▅▆▇█"
IDLE = "·"
Run = tuple[str, str]
"""Characters and their rich style."""


def colour_timelines(view: Timelines, *, width: int) -> tuple[Text, ...]:
    """Draw the timelines for a terminal with colours."""
    return _lines(view, width, labelled=True)


def plain_timelines(view: Timelines, *, width: int) -> tuple[Text, ...]:
    """Draw the timelines for a terminal without colours."""
    return _lines(view, width, labelled=False)


def _lines(view: Timelines, width: int, *, labelled: bool) -> tuple[Text, ...]:
    room = max(len(f"rank {len(line.ranks) - 1}") for line in view.lines) + 1
    columns = max(width - room, 10)
    lines: list[Text] = []
    for line in view.lines:
        lines.append(Text(view.heading(line), "bold"))
        for number, rank in enumerate(line.ranks):
            row = _labelled(view, line, rank, columns) if labelled else _heights(view, line, rank, columns)
            lines.append(Text.assemble((f"{f'rank {number}':<{room}}", "dim"), *row))
        lines.append(Text())
    lines[-1] = Text(" " * room + _axis(view.end_s, columns), "dim")
    return (*lines, _legend(view, labelled=labelled))


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


def _labelled(view: Timelines, line: PipelineTimeline, rank: Sequence[Bar], columns: int) -> Iterator[Run]:
    for bar, run in groupby(_cells(view, line, rank, columns), key=lambda bar: bar):
        wide = len(list(run))
        if bar is None:
            yield IDLE * wide, "dim"
        else:
            label = bar.label if len(bar.label) < wide else ""
            slant = "italic" if bar.instruction == "forward" else "bold"
            yield f"{label:^{wide}}", _clock_style(_level(view, bar), slant)


def _heights(view: Timelines, line: PipelineTimeline, rank: Sequence[Bar], columns: int) -> Iterator[Run]:
    levels = (None if bar is None else _level(view, bar) for bar in _cells(view, line, rank, columns))
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


def _legend(view: Timelines, *, labelled: bool) -> Text:
    clocks = view.clocks_mhz
    low, high = (f"{clocks[0]} ", f" {clocks[-1]} MHz") if clocks else ("", "default clock")
    levels = range(LEVELS) if clocks else (LEVELS - 1,)
    steps = (("  " if labelled else _BLOCKS[level], _clock_style(level)) for level in levels)
    simulated = "  (simulated)" if view.simulated else ""
    return Text.assemble(
        (low, "dim"),
        *steps,
        (f"{high}   ", "dim"),
        (IDLE * 2, "dim"),
        (f" waits{'   italic forward, bold backward' if labelled else ''}{simulated}", "dim"),
    )
