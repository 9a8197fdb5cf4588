"""Charts of a job: epochs to the target against batch size, also as bars in a terminal, and the frontier."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from rich.text import Text

from wattune.core.job import JobRun, Outcome
from wattune.core.measurement import Measurement
from wattune.levels.job.policies import EpochsBand
from wattune.levels.job.view.cost_map import BEST, CHOSEN, DEFAULT, MARKS, CostMap, MapCell, StyledText, cut, short
from wattune.levels.job.view.view_model import ENDS, JobView, gpu_label
from wattune.render.chart import (
    Axis,
    Chart,
    Mark,
    Note,
    Point,
    ReferenceLine,
    Scale,
    Series,
    Shape,
    Spread,
    Tone,
    default_series,
)
from wattune.render.quantity import Unit, cost_changes, counted, long_unit, number, unit_for

_WIDE = 8.0
"""Values that differ by more than this factor are drawn on a logarithmic axis."""
_WIDEST = 1e9
"""Values that differ by more than this are no costs of one job, and would make either axis unreadable."""
_FEW = 12
"""Most numbers along an axis."""


def size_axis(sizes: tuple[int, ...], title: str) -> Axis:
    """Return a logarithmic axis that names every batch size it has room for."""
    return Axis(
        title=title,
        scale=Scale.LOG,
        low=sizes[0] / 1.3,
        high=sizes[-1] * 1.3,
        marks=tuple((float(size), str(size)) for size in sizes),
    )


def count_axis(title: str, last: int) -> Axis:
    """Return an axis for counts from 1, without fractions."""
    step = next(size * 10**power for power in range(20) for size in (1, 2, 5) if last <= _FEW * size * 10**power)
    marks = tuple((float(number), str(number)) for number in range(step, last + 1, step))
    return Axis(title=title, low=0.0, high=max(last * 1.03, last + 0.5), marks=marks)


def value_axis(title: str, unit: str | None, values: Sequence[float]) -> Axis:
    """Return an axis from 0, or a logarithmic one where the values differ by too much."""
    if values and max(values) > _WIDE * min(values):
        return factor_axis(title, unit, values)
    return Axis(title=title, unit=unit, low=min(0.0, min(values, default=0.0)))


def factor_axis(title: str, unit: str | None, values: Sequence[float]) -> Axis:
    """Return a logarithmic axis where all values fit on one, else a linear one."""
    fits = bool(values) and min(values) > 0 and max(values) < _WIDEST * min(values)
    return Axis(title=title, unit=unit, scale=Scale.LOG if fits else Scale.LINEAR)


OUTCOMES = {
    Outcome.REACHED: (Shape.CIRCLE, Tone.GREEN, "reached the target"),
    Outcome.MISSED: (Shape.CROSS, Tone.ORANGE, "missed it: would need more"),
    Outcome.STOPPED: (Shape.TRIANGLE, Tone.PURPLE, "stopped: would need more"),
    Outcome.RUNNING: (Shape.DIAMOND, Tone.GREY, "still running"),
}
"""Shape, colour and name of runs by outcome; other outcomes give no epochs."""


def epochs_chart(view: JobView) -> Chart:
    """Draw epochs to the target against batch size: prediction, band, and every run by outcome."""
    bands = view.epochs
    runs = tuple(run for run in view.memory.runs if run.epochs)
    most = view.most_epochs
    edges = [min(edge, most) for band in bands for edge in (band.low, band.high)]
    shown = edges + [float(run.epochs) for run in runs]
    cap = view.job.max_epochs
    return Chart(
        title=f"Epochs to the target: {view.job.name}",
        subtitle=_subtitle(view),
        x=size_axis(view.batch_sizes, "batch size"),
        y=value_axis("epochs", None, shown),
        series=(*_expected(view, bands), *_runs(runs)),
        notes=_notes(view, bands),
        rules=(ReferenceLine(float(cap), f"at most {cap}"),) if shown and cap <= 1.5 * max(shown) else (),
    )


def _subtitle(view: JobView) -> str:
    gpus = {run.gpu.key: gpu_label(run.gpu) for run in view.memory.runs} or {view.gpu.key: gpu_label(view.gpu)}
    learned = "expected, and its band" if view.predicted else "mean of the runs, from least to most"
    return f"{counted(len(view.memory.runs), 'run')} on {', '.join(gpus.values())}; line: {learned}"


def _expected(view: JobView, bands: tuple[EpochsBand, ...]) -> tuple[Series, ...]:
    if not bands:
        return ()
    most = view.most_epochs
    tips = [f"{own.batch_size}: {number(own.epochs)} epochs, {number(own.low)} to {number(own.high)}" for own in bands]
    drawn = [band.epochs if band.epochs <= most else None for band in bands]
    points = tuple(map(Point, (float(band.batch_size) for band in bands), drawn, tips))
    spread = tuple(Spread(float(own.batch_size), min(own.low, most), min(own.high, most)) for own in bands)
    name = "predicted" if view.predicted else "mean"
    mark = Mark.LINE if len(bands) > 1 else Mark.POINTS
    return (
        Series(
            name=name,
            points=points,
            mark=mark,
            tone=Tone.BLUE,
            spread=spread if len(bands) > 1 else (),
            shape=Shape.SQUARE,
        ),
    )


def _runs(runs: Iterable[JobRun]) -> tuple[Series, ...]:
    own: dict[Outcome, list[Point]] = {outcome: [] for outcome in OUTCOMES}
    for run in runs:
        if run.outcome in own:
            own[run.outcome].append(Point(float(run.batch_size), float(run.epochs), run_tip(run)))
    return tuple(
        Series(name=name, points=tuple(own[outcome]), mark=Mark.POINTS, tone=tone, shape=shape)
        for outcome, (shape, tone, name) in OUTCOMES.items()
        if own[outcome]
    )


def run_tip(run: JobRun) -> str:
    """Return the tooltip of a run."""
    first = f"run {run.order + 1}, recurrence {run.recurrence + 1}: batch size {run.batch_size} on {gpu_label(run.gpu)}"
    return "\n".join(filter(None, (first, f"{counted(run.epochs, 'epoch')}, {ENDS[run.outcome]}", run.why)))


def _notes(view: JobView, bands: tuple[EpochsBand, ...]) -> tuple[Note, ...]:
    known = {band.batch_size: band.epochs for band in bands if band.epochs <= view.most_epochs}
    named: dict[int, list[str]] = {}
    for size, name in ((view.job.default_batch_size, "default"), (view.next_size, "next")):
        if size is not None and size in known:
            named.setdefault(size, []).append(name)
    return tuple(
        Note(float(size), known[size], ", ".join(names), f"{number(known[size])} epochs")
        for size, names in named.items()
    )


def job_frontier_chart(view: CostMap) -> Chart | None:
    """Draw energy against time of all allowed cells, with their frontier; None where nothing is known."""
    cells = [cell for cell in view.cells if cell.ratio is not None and _positive(cell.cost)]
    costs = [cell.cost for cell in cells if cell.cost is not None]
    if not costs:
        return None
    units = long_unit(cost.time_s for cost in costs), unit_for((cost.energy_j for cost in costs), "J")
    kept = sorted((cell for cell in cells if cell.on_frontier), key=lambda cell: cell.cost.time_s if cell.cost else 0.0)
    default = view.named(DEFAULT)
    others = [cell for cell in cells if not cell.on_frontier and cell is not default]
    series = [Series(name="frontier", points=_points(kept, units), mark=Mark.LINE_AND_POINTS, tone=Tone.BLUE)]
    if others:
        points = _points(others, units)
        series.append(
            Series(name="beaten in both", points=points, mark=Mark.POINTS, tone=Tone.GREY, shape=Shape.DIAMOND)
        )
    if default is not None and default in cells:
        series.append(default_series("default", *_points([default], units)))
    return Chart(
        title="Time-energy frontier of a run to the target",
        subtitle=f"{'simulated ' if view.simulated else ''}{view.gpu}; expected; left is faster, down is cheaper",
        x=factor_axis("time per run", units[0].symbol, [cost.time_s * units[0].factor for cost in costs]),
        y=factor_axis("energy per run", units[1].symbol, [cost.energy_j * units[1].factor for cost in costs]),
        series=tuple(series),
        notes=_frontier_notes(view, units),
    )


def _positive(cost: Measurement | None) -> bool:
    return cost is not None and cost.time_s > 0 and cost.energy_j > 0


def _points(cells: list[MapCell], units: tuple[Unit, Unit]) -> tuple[Point, ...]:
    return tuple(Point(*_place(cell.cost, units), cell.tip) for cell in cells if cell.cost is not None)


def _place(cost: Measurement, units: tuple[Unit, Unit]) -> tuple[float, float]:
    return cost.time_s * units[0].factor, cost.energy_j * units[1].factor


def _frontier_notes(view: CostMap, units: tuple[Unit, Unit]) -> tuple[Note, ...]:
    """Label the default, the chosen and the best cell; one label where they are the same."""
    default = view.named(DEFAULT)
    cells = dict.fromkeys(filter(None, (default, view.named(CHOSEN), view.named(BEST))))
    notes = []
    for cell in cells:
        if cell.cost is None or not _positive(cell.cost):
            continue
        words = f"{', '.join(cell.names)}: {cell.choice.batch_size}, {short(cell.choice.setting)}"
        base = default.cost if default is not None else None
        detail = None if base is None or cell is default else cost_changes(cell.cost, base)
        notes.append(Note(*_place(cell.cost, units), words, detail))
    return tuple(notes)


_LEAST_BAR, _MOST_BAR = 8, 40
_EIGHTHS = " ▏▎▍▌▋▊▉"


def epochs_lines(view: JobView, *, width: int) -> tuple[Text, ...]:
    """Return a line per batch size: a bar of the epochs to the target, its band, and the outcomes of its runs."""
    bands = {band.batch_size: band for band in view.epochs}
    sizes = tuple(sorted({*view.batch_sizes, *bands}))
    figures = {size: _figures(bands.get(size)) for size in sizes}
    ends = {size: view.barred.get(size) or _ends(view.memory.runs, size) for size in sizes}
    room = max(map(len, figures.values()))
    left = max(len("batch size"), *(len(_named(view, size)) for size in sizes))
    bar = min(max(width - left - room - max(map(len, ends.values())) - 6, _LEAST_BAR), _MOST_BAR)
    most = _scale(tuple(bands.values()), view.most_epochs)
    title = "epochs to the target" + (" (simulated)" if view.gpu.simulated else "")
    lines: list[Text] = [Text(f"{'batch size':>{left}}  {title}", "dim")]
    for size in sizes:
        drawn = _bar(bands.get(size), most, bar)
        words = (cut(f"  {ends[size]}", width - left - room - bar - 4), "dim")
        figure = (f"  {figures[size]:<{room}}", "bold" if size in bands else "dim")
        lines.append(Text.assemble((f"{_named(view, size):>{left}}  ", "bold"), *drawn, figure, words))
    return tuple(lines)


def _scale(bands: Sequence[EpochsBand], most_epochs: float) -> float:
    """Return the epochs of the longest bar; a band that is far too wide does not shrink all bars."""
    if not bands:
        return 1.0
    longest = max(band.epochs for band in bands)
    return min(max(band.high for band in bands), 1.5 * longest, most_epochs)


def _named(view: JobView, size: int) -> str:
    names = [MARKS[DEFAULT]] if size == view.job.default_batch_size else []
    names += [MARKS[CHOSEN]] if size == view.next_size else []
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
    ends = sorted((outcome for outcome in Outcome if counts[outcome]), key=lambda outcome: outcome is Outcome.RUNNING)
    return ", ".join(f"{counts[outcome]} {outcome.value.replace('_', ' ')}" for outcome in ends) or "untried"


def _bar(band: EpochsBand | None, most: float, width: int) -> Iterator[StyledText]:
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
