"""The page of a recurring job: savings, charts of each recurrence, known batch sizes, and what comes next."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from wattune.core.job import JobRun, Outcome
from wattune.core.measurement import Measurement
from wattune.core.tariff import Tariff
from wattune.levels.job.policies import EpochsBand
from wattune.levels.job.view.charts import count_axis, epochs_chart, job_frontier_chart, run_tip, size_axis, value_axis
from wattune.levels.job.view.comparison import by_recurrence
from wattune.levels.job.view.cost_map import CostMap, MapRow
from wattune.levels.job.view.view_model import (
    ENDS,
    JobView,
    amount,
    comparison_words,
    counted_in,
    gpu_label,
    job_map,
    share_words,
)
from wattune.physics.catalog import trust_of
from wattune.render.chart import Chart, Mark, Point, ReferenceLine, Series, Shape, Tone
from wattune.render.page import Figure, Figures, LargeChart, Page, Prose, Section, Table, render_page
from wattune.render.quantity import (
    UNKNOWN,
    cost_changes,
    counted,
    duration,
    footprint_words,
    number,
    percent,
    quantity,
    unit_for,
)
from wattune.render.svg import standalone

_SHAPES = (Shape.CIRCLE, Shape.SQUARE, Shape.DIAMOND, Shape.TRIANGLE)
_FAILED = "target not reached"
_INCLUDED = "failed runs and profiling included"


@dataclass(frozen=True, slots=True)
class Recurrence:
    """One request to train the model: its runs, and their total cost."""

    number: int
    runs: tuple[JobRun, ...]
    cost: Measurement
    value: float
    """The value of the objective."""

    @property
    def batch_size(self) -> int:
        """That of its last run."""
        return self.runs[-1].batch_size

    @property
    def reached(self) -> bool:
        return any(run.outcome is Outcome.REACHED for run in self.runs)


def recurrences(view: JobView) -> tuple[Recurrence, ...]:
    """Return the recurrences on this GPU model that have ended and have a cost, oldest first."""
    found = []
    for recurrence, runs in by_recurrence(view.here):
        costs = [run.cost for run in runs if run.cost is not None]
        if costs and all(run.outcome is not Outcome.RUNNING for run in runs):
            whole = Measurement(sum(cost.time_s for cost in costs), sum(cost.energy_j for cost in costs))
            found.append(Recurrence(recurrence, runs, whole, view.objective.value(whole)))
    return tuple(found)


def history_chart(view: JobView) -> Chart:
    """Draw the cost of each recurrence by its last batch size, and the default's cost as a line."""
    done = recurrences(view)
    what, base = counted_in(view.job.objective)
    default = None if view.default_run is None else view.objective.value(view.default_run)
    values = [own.value for own in done] + ([] if default is None else [default])
    unit = unit_for(values, base)
    other = len(view.memory.runs) - len(view.here)
    elsewhere = f"; {counted(other, 'run')} on other GPUs not shown" if other else ""
    series = _by_size(view, done, unit.factor)
    return Chart(
        title=f"{what[0].upper()}{what[1:]} of each recurrence: {view.job.name}",
        subtitle=(
            f"{gpu_label(view.gpu)}; {_INCLUDED if done else 'no recurrence is over yet'}{elsewhere}{_alone(series)}"
        ),
        x=count_axis("recurrence", max((own.number + 1 for own in done), default=1)),
        y=value_axis(what, unit.symbol or None, [value * unit.factor for value in values]),
        series=series,
        rules=()
        if default is None
        else (ReferenceLine(default * unit.factor, f"default, estimated: {amount(default, base)}"),),
    )


def sizes_chart(view: JobView) -> Chart:
    """Draw the batch size of every run on this GPU model, in the order of submission, by outcome."""
    shapes = {
        Outcome.REACHED: (Shape.CIRCLE, Tone.GREEN),
        Outcome.MISSED: (Shape.CROSS, Tone.ORANGE),
        Outcome.STOPPED: (Shape.TRIANGLE, Tone.PURPLE),
        Outcome.OUT_OF_MEMORY: (Shape.SQUARE, Tone.GOLD),
        Outcome.CRASHED: (Shape.CROSS, Tone.GREY),
        Outcome.LOST: (Shape.TRIANGLE, Tone.GREY),
        Outcome.RUNNING: (Shape.DIAMOND, Tone.SKY),
    }
    series = []
    for outcome, (shape, tone) in shapes.items():
        points = tuple(
            Point(float(run.order + 1), float(run.batch_size), run_tip(run))
            for run in view.here
            if run.outcome is outcome
        )
        if points:
            series.append(Series(name=ENDS[outcome], points=points, mark=Mark.POINTS, tone=tone, shape=shape))
    return Chart(
        title=f"Batch size of each run: {view.job.name}",
        subtitle=gpu_label(view.gpu) + _alone(series),
        x=count_axis("run", max((run.order + 1 for run in view.here), default=1)),
        y=size_axis(view.batch_sizes, "batch size"),
        series=tuple(series),
    )


def _alone(series: Sequence[Series]) -> str:
    """Return what a single series shows, since it has no legend."""
    return f"; all {series[0].name}" if len(series) == 1 else ""


def _by_size(view: JobView, done: tuple[Recurrence, ...], factor: float) -> tuple[Series, ...]:
    """Return a series per batch size, each with its shape and tone; failed ones are crosses."""
    series = []
    for place, size in enumerate(view.batch_sizes):
        own = tuple(each for each in done if each.reached and each.batch_size == size)
        if own:
            shape, tone = _SHAPES[place % len(_SHAPES)], tuple(Tone)[place % len(Tone)]
            points = tuple(_point(view, each, factor) for each in own)
            series.append(Series(name=f"size {size}", points=points, mark=Mark.POINTS, tone=tone, shape=shape))
    failed = tuple(_point(view, each, factor) for each in done if not each.reached)
    if failed:
        series.append(Series(name=_FAILED, points=failed, mark=Mark.POINTS, tone=Tone.GREY, shape=Shape.CROSS))
    return tuple(series)


def _point(view: JobView, own: Recurrence, factor: float) -> Point:
    lines = [f"recurrence {own.number + 1}: {amount(own.value, counted_in(view.job.objective)[1])}"]
    lines.append(f"{duration(own.cost.time_s)}, {quantity(own.cost.energy_j, 'J')}")
    lines += [f"{run.batch_size}: {counted(run.epochs, 'epoch')}, {ENDS[run.outcome]}" for run in own.runs]
    return Point(own.number + 1, own.value * factor, "\n".join(lines))


_MOST_RUNS = 60
"""Number of runs listed; older ones are in the charts only."""


def job_file(view: JobView, *, searcher: str, made: str, suffix: str, tariff: Tariff) -> str:
    """Render the whole page for `.html`, its first chart for `.svg`."""
    if suffix == ".svg":
        return standalone(history_chart(view))
    return render_page(job_page(view, searcher=searcher, made=made, tariff=tariff))


def job_page(view: JobView, *, searcher: str, made: str, tariff: Tariff) -> Page:
    """Lay out the page of a job; `searcher` names the policy, `made` is the footer."""
    known = job_map(view)
    sections: list[Section] = [
        Figures((*_figures(view, tariff), *_long_run(known, view.gpu.count, tariff))),
        *_pictures(view, known),
        _sizes(view, known),
    ]
    if view.memory.runs:
        sections.append(_runs(view))
    sections.append(Prose("How to read it", _how(view, searcher)))
    return Page(
        title=f"{view.job.name} on {view.gpu.name}",
        lead=_lead(view),
        simulated=view.gpu.simulated,
        trust=trust_of(view.gpu.simulated, view.gpu.name),
        sections=tuple(sections),
        foot=made,
    )


def _pictures(view: JobView, known: CostMap) -> Iterator[Section]:
    """Yield the charts for which there is data."""
    if view.here:
        yield LargeChart(history_chart(view))
        yield LargeChart(sizes_chart(view))
    if view.memory.runs:
        yield LargeChart(epochs_chart(view))
    frontier = job_frontier_chart(known)
    if frontier is not None:
        yield LargeChart(frontier)


def _lead(view: JobView) -> str:
    if not view.here:
        words = f"No run on {gpu_label(view.gpu)} yet."
    else:
        words = f"{counted(len(view.here), 'run')} on {gpu_label(view.gpu)}: {comparison_words(view).rstrip('.')}."
    if view.proposal is None:
        return words
    return f"{words} The next run gets batch size {view.proposal.batch_size}: {view.proposal.why.rstrip('.')}."


def _figures(view: JobView, tariff: Tariff) -> tuple[Figure, ...]:
    what, _ = counted_in(view.job.objective)
    spent, words = view.spent, footprint_words(view.footprint(tariff))
    learning = f"{quantity(view.exploring.energy_j, 'J')} in runs made to learn"
    even = {None: "not expected", 0: "reached"}.get(view.break_even, f"in {view.break_even}")
    return (
        Figure(
            share_words(view.objective_share),
            f"{what} against the default",
            f"energy {share_words(view.energy_share)}, time {share_words(view.time_share)}",
        ),
        Figure(quantity(spent.energy_j, "J"), "spent in all", f"in {duration(spent.time_s)}: {words}"),
        Figure(quantity(view.profiling.energy_j, "J"), "of that in profiling", learning),
        Figure(even, "break-even", "recurrences until learning has paid for itself"),
    )


def _long_run(known: CostMap, gpus: int, tariff: Tariff) -> Iterator[Figure]:
    """Yield what the next choice saves in work that takes 1,000 GPU-hours by default, where both costs are expected."""
    default, chosen = known.named("default"), known.named("chosen")
    if default is None or chosen is None or default.cost is None or chosen.cost is None or not default.cost.power_w:
        return
    saving = 1 - chosen.cost.energy_j / default.cost.energy_j
    saved = tariff.in_the_long_run(saving, default.cost.power_w / gpus, started_at=datetime.now(UTC))
    yield Figure(
        footprint_words(saved),
        "saved per 1,000 GPU-hours",
        f"expected of batch size {chosen.choice.batch_size} at {chosen.choice.setting}; "
        f"{cost_changes(chosen.cost, default.cost)}",
    )


def _sizes(view: JobView, known: CostMap) -> Table:
    head = ("batch size", "", "runs", "epochs expected", "setting", "time", "energy", "cost above the best")
    bands = {band.batch_size: band for band in view.epochs}
    rows = tuple(_size_cells(view, row, bands.get(row.batch_size)) for row in known.rows)
    strong = frozenset(place for place, row in enumerate(known.rows) if row.batch_size == view.next_size)
    return Table("Every batch size, at its best setting", head, rows, words=2, strong=strong)


def _size_cells(view: JobView, row: MapRow, band: EpochsBand | None) -> tuple[str, ...]:
    size = row.batch_size
    names = [name for name, own in (("default", view.job.default_batch_size), ("next", view.next_size)) if own == size]
    runs = sum(run.batch_size == size for run in view.memory.runs)
    cells = [cell for cell in row.cells if cell.ratio is not None]
    best = min(cells, key=lambda cell: cell.ratio or 0.0, default=None)
    epochs = UNKNOWN if band is None else f"{number(band.epochs)} ({number(band.low)} to {number(band.high)})"
    first = (str(size), ", ".join(filter(None, (*names, row.barred))) or ("" if runs else "untried"), str(runs), epochs)
    if best is None or best.cost is None or best.ratio is None:
        return (*first, UNKNOWN, UNKNOWN, UNKNOWN, UNKNOWN)
    above = percent(100 * (best.ratio - 1))
    return (*first, str(best.choice.setting), duration(best.cost.time_s), quantity(best.cost.energy_j, "J"), above)


def _runs(view: JobView) -> Table:
    newest = sorted(view.memory.runs, key=lambda run: run.order, reverse=True)
    older = len(newest) - _MOST_RUNS
    title = "Every run, newest first" if older <= 0 else f"The newest {_MOST_RUNS} of {len(newest)} runs"
    head = ("run", "ended", "GPU", "why", "recurrence", "batch size", "epochs", "setting", "time", "energy")
    return Table(title, head, tuple(_run_cells(run) for run in newest[:_MOST_RUNS]), words=4)


def _run_cells(run: JobRun) -> tuple[str, ...]:
    cost = run.cost
    return (
        str(run.order + 1),
        ENDS[run.outcome],
        gpu_label(run.gpu),
        run.why or UNKNOWN,
        str(run.recurrence + 1),
        str(run.batch_size),
        str(run.epochs),
        UNKNOWN if run.setting is None else str(run.setting),
        duration(None if cost is None else cost.time_s),
        quantity(None if cost is None else cost.energy_j, "J"),
    )


def _how(view: JobView, searcher: str) -> tuple[str, ...]:
    job = view.job
    source = "the epochs that the model predicts" if view.predicted else "the mean epochs of earlier runs"
    paragraphs = [
        f"A run trains to {'at least' if job.higher_is_better else 'at most'} {job.target:g} within {job.max_epochs} "
        f"epochs; the objective is {job.objective}; batch sizes are chosen by {searcher}. A recurrence is one "
        "request to train the model, and costs all its runs, including those that were stopped or missed the target.",
        f"Expected cost is {source}, times the profiled cost of an epoch at each setting. Hatched cells were not "
        "measured, or their batch size is excluded for the reason given.",
        "The default is a run without tuning: the default batch size at the highest measured setting. Steps are "
        "compared with steps: the start of a run, pauses between its steps and its end are alike with and without "
        "tuning. Where steps are not counted, whole epochs are compared, without the first.",
    ]
    return tuple(paragraphs)
