"""A recurring job for a terminal: predicted epochs as bars, and the batch size × setting map as a table.

Everything that a colour shows is in the words too.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from math import log

from rich.cells import cell_len, set_cell_size
from rich.text import Text

from wattune.core.job import JobRun, Outcome
from wattune.levels.job.policies import EpochsBand
from wattune.levels.job.view.cost_map import CHOSEN, DEFAULT, CostMap, MapCell, MapRow, short, thinned
from wattune.levels.job.view.view_model import JobView, barred_sizes
from wattune.render.palette import ink_on, scale_colour
from wattune.render.quantity import counted, number

LEVELS = 8
_WORST = 3.0
"""Cells that cost this many times the best, or more, have the darkest colour."""
_CELL = 10
_RAISED = str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹")
_LEAST_BAR, _MOST_BAR = 8, 40
_EIGHTHS = " ▏▎▍▌▋▊▉"
_SHORT = {
    Outcome.REACHED: "reached",
    Outcome.MISSED: "missed",
    Outcome.STOPPED: "stopped",
    Outcome.OUT_OF_MEMORY: "out of memory",
    Outcome.CRASHED: "crashed",
    Outcome.LOST: "lost",
    Outcome.RUNNING: "running",
}
_MARKS = {CHOSEN: "►", DEFAULT: "○"}
Run = tuple[str, str]
"""Characters and their rich style."""


def epochs_lines(view: JobView, *, width: int) -> tuple[Text, ...]:
    """Return a line per batch size: a bar of the epochs to the target, its band, and the outcomes of its runs."""
    bands = {band.batch_size: band for band in view.epochs}
    barred = barred_sizes(view)
    sizes = tuple(sorted({*view.batch_sizes, *bands}))
    figures = {size: _figures(bands.get(size)) for size in sizes}
    ends = {size: barred.get(size) or _ends(view.memory.runs, size) for size in sizes}
    room = max(map(len, figures.values()))
    left = max(len("batch size"), *(len(_named(view, size)) for size in sizes))
    bar = min(max(width - left - room - max(map(len, ends.values())) - 6, _LEAST_BAR), _MOST_BAR)
    most = _scale(tuple(bands.values()), view.most_epochs)
    title = "epochs to the target" + (" (simulated)" if view.gpu.simulated else "")
    lines: list[Text] = [Text(f"{'batch size':>{left}}  {title}", "dim")]
    for size in sizes:
        drawn = _bar(bands.get(size), most, bar)
        words = (_cut(f"  {ends[size]}", width - left - room - bar - 4), "dim")
        figure = (f"  {figures[size]:<{room}}", "bold" if size in bands else "dim")
        lines.append(Text.assemble((f"{_named(view, size):>{left}}  ", "bold"), *drawn, figure, words))
    return tuple(lines)


def map_lines(view: CostMap, *, width: int) -> tuple[Text, ...]:
    """Return the map as a table of expected cost above the best, with as many columns as there is room for."""
    if not view.settings:
        return (Text("no setting was measured yet", "dim"),)
    left = max(len("batch size"), *(len(str(row.batch_size)) for row in view.rows)) + 2
    shown = thinned(view, max((width - left) // _CELL, 1))
    heads = "".join(f"{_cut(short(setting), _CELL - 1):>{_CELL}}" for setting in shown.settings)
    lines: list[Text] = [Text(f"{'batch size':>{left - 2}}  {heads}", "dim")]
    for row in reversed(shown.rows):
        label = (f"{row.batch_size:>{left - 2}}  ", "bold")
        lines.append(Text.assemble(label, *_row(row, room=len(shown.settings) * _CELL)))
    return (*lines, *_legend(view, width, hidden=len(view.settings) - len(shown.settings)))


def _scale(bands: Sequence[EpochsBand], most_epochs: float) -> float:
    """Return the epochs of the longest bar; a band that is far too wide does not shrink all bars."""
    if not bands:
        return 1.0
    longest = max(band.epochs for band in bands)
    return min(max(band.high for band in bands), 1.5 * longest, most_epochs)


def _named(view: JobView, size: int) -> str:
    names = [_MARKS[DEFAULT]] if size == view.job.default_batch_size else []
    names += [_MARKS[CHOSEN]] if size == view.next_size else []
    return " ".join((*names, str(size)))


def _figures(band: EpochsBand | None) -> str:
    if band is None:
        return "not known"
    if band.low == band.high:
        return number(band.epochs)
    return f"{number(band.epochs)} ({number(band.low)} to {number(band.high)})"


def _ends(runs: Sequence[JobRun], size: int) -> str:
    """Describe how the runs of a size ended."""
    counts = Counter(run.outcome for run in runs if run.batch_size == size)
    return ", ".join(f"{counts[outcome]} {_SHORT[outcome]}" for outcome in _SHORT if counts[outcome]) or "untried"


def _bar(band: EpochsBand | None, most: float, width: int) -> Iterator[Run]:
    """Yield a full bar up to the expected epochs, and a light one from there to the upper end of the band."""
    if band is None:
        yield "·" * width, "dim"
        return
    eighths = round(8 * width * min(band.epochs / most, 1.0))
    full, part = divmod(eighths, 8)
    solid = "█" * full + (_EIGHTHS[part] if part else "")
    rest = max(round(width * min(band.high / most, 1.0)) - len(solid), 0)
    yield solid, "blue"
    yield "░" * rest, "blue dim"
    yield " " * (width - len(solid) - rest), ""


def _row(row: MapRow, *, room: int) -> Iterator[Run]:
    if row.barred is not None:
        yield f"{_cut(f' {row.barred} ', room):╌^{room}}", "dim"
        return
    for cell in row.cells:
        yield _words(cell), "dim" if cell.ratio is None else _cell_style(cell.ratio)


def _words(cell: MapCell) -> str:
    sign = next((mark for name, mark in _MARKS.items() if name in cell.names), "")
    label = cell.label if cell.ratio is not None or cell.cost is not None else "·"
    frontier = "◆" if cell.on_frontier else ""
    runs = str(cell.runs).translate(_RAISED) if 0 < cell.runs < 100 else "⁺" if cell.runs else " "
    return f"{sign}{frontier}{label.replace(' %', '%')}{runs}".rjust(_CELL)


def _cell_style(ratio: float) -> str:
    """Return the colours of a cost, from the darkest at `_WORST` times the best to the brightest at the best."""
    share = round((1 - min(log(max(ratio, 1.0)) / log(_WORST), 1.0)) * (LEVELS - 1)) / (LEVELS - 1)
    return f"{ink_on(share)} on {scale_colour(share)}"


def _legend(view: CostMap, width: int, *, hidden: int) -> Iterator[Text]:
    words = ["expected cost above the best", f"{'simulated ' if view.simulated else ''}{view.gpu}"]
    words += [f"{_MARKS[CHOSEN]} chosen", f"{_MARKS[DEFAULT]} default", "◆ on the frontier", "⁷ runs there"]
    words += ["· not measured", *([f"{counted(hidden, 'setting')} left out"] if hidden else [])]
    line = words[0]
    for word in words[1:]:
        if cell_len(f"{line}   {word}") > width:
            yield Text(line, "dim")
            line = word
        else:
            line = f"{line}   {word}"
    yield Text(line, "dim")


def _cut(text: str, room: int) -> str:
    """Shorten the text to the room there is."""
    return text if cell_len(text) <= room else set_cell_size(text, max(room - 1, 0)) + "…"
