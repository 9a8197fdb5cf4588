"""The page of a recurring job: what it has saved, what each recurrence cost, what is known, and what comes next."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from wattune.core.job import JobRun
from wattune.core.measurement import Measurement
from wattune.levels.job.view.charts import job_frontier_chart, law_chart
from wattune.levels.job.view.cost_map import CostMap, MapRow
from wattune.levels.job.view.cost_map_svg import STYLE, draw_map
from wattune.levels.job.view.history import history_chart, sizes_chart
from wattune.levels.job.view.view_model import EpochsBand, JobView, job_map
from wattune.levels.job.view.words import ENDS, counted_in, gpu_label
from wattune.render.page import Drawing, Figure, Figures, LargeChart, Page, Prose, Section, Table, render_page
from wattune.render.quantity import UNKNOWN, counted, duration, number, percent, quantity
from wattune.render.svg import standalone

_MOST_RUNS = 60
"""The newest runs are listed; older ones are in the pictures."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobReport:
    """A job on one part and what a reader must know to judge it; None where a figure is not known yet."""

    view: JobView
    searcher: str
    next_why: str | None = None
    """Why the next run would get its batch size."""
    recurrences: int
    """Those that reached the target."""
    spent: Measurement
    profiling: Measurement
    exploring: Measurement
    saving_percent: float | None = None
    """Of the objective's cost, against default runs; below 0 where more was spent so far."""
    energy_saving_percent: float | None = None
    break_even: int | None = None
    """Recurrences until what was spent on learning is saved again; 0 where it is."""
    made: str


def job_file(report: JobReport, *, suffix: str) -> str:
    """The whole page for `.html`, its first picture for `.svg`."""
    return standalone(history_chart(report.view)) if suffix == ".svg" else render_page(job_page(report))


def job_page(report: JobReport) -> Page:
    """The page of a job."""
    view = report.view
    known = job_map(view)
    sections: list[Section] = [Figures(_figures(report)), *_pictures(view, known), _sizes(view, known)]
    if view.memory.runs:
        sections.append(_runs(view))
    sections.append(Prose("How to read it", _how(report)))
    return Page(
        title=f"{view.job.name} on {view.gpu.name}",
        lead=_lead(report),
        simulated=view.gpu.simulated,
        sections=tuple(sections),
        foot=report.made,
    )


def _pictures(view: JobView, known: CostMap) -> Iterator[Section]:
    """The pictures that there is something to show in."""
    if view.here:
        yield LargeChart(history_chart(view))
        yield LargeChart(sizes_chart(view))
    if view.memory.runs:
        yield LargeChart(law_chart(view))
    if known.settings:
        yield Drawing(draw_map(known), STYLE)
    frontier = job_frontier_chart(known)
    if frontier is not None:
        yield LargeChart(frontier)


def _lead(report: JobReport) -> str:
    saved, view = report.saving_percent, report.view
    if not view.here:
        words = f"No run on {gpu_label(view.gpu)} yet."
    elif saved is None:
        words = f"{counted(len(view.here), 'run')} on {gpu_label(view.gpu)}; what the default costs is not known yet."
    else:
        side = "less" if saved >= 0 else "more"
        what, _ = counted_in(view.job.objective)
        words = (
            f"{counted(report.recurrences, 'recurrence')} on {gpu_label(view.gpu)} "
            f"took {abs(saved):.1f} % {side} {what} "
            f"than as many runs of the default ({view.job.default_batch_size}), learning included."
        )
    if view.next_size is None:
        return words
    why = f": {report.next_why}" if report.next_why else ""
    return f"{words} The next run gets batch size {view.next_size}{why}"


def _figures(report: JobReport) -> tuple[Figure, ...]:
    what, _ = counted_in(report.view.job.objective)
    spent, energy = report.spent, report.energy_saving_percent
    learning = f"{quantity(report.exploring.energy_j, 'J')} in runs made to learn"
    even = {None: "not in sight", 0: "reached"}.get(report.break_even, f"in {report.break_even}")
    return (
        Figure(
            percent(None if report.saving_percent is None else -report.saving_percent),
            f"{what} against the default",
            f"energy {percent(None if energy is None else -energy)}",
        ),
        Figure(quantity(spent.energy_j, "J"), "spent in all", duration(spent.time_s)),
        Figure(quantity(report.profiling.energy_j, "J"), "of that in profiling", learning),
        Figure(even, "break-even", "recurrences until learning has paid for itself"),
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
    head = ("run", "ended", "part", "why", "recurrence", "batch size", "epochs", "setting", "time", "energy")
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


def _how(report: JobReport) -> tuple[str, ...]:
    job = report.view.job
    source = "the law that was learned" if report.view.law else "what runs have needed"
    paragraphs = [
        f"A run trains to {'at least' if job.higher_is_better else 'at most'} {job.target:g} within {job.max_epochs} "
        f"epochs; the objective is {job.objective}; batch sizes are chosen by {report.searcher}. A recurrence is one "
        "wish to have the model trained, and costs all its runs: those that were stopped or missed the target, too.",
        f"Expected cost is the epochs of {source}, times what profiling measured of an epoch at each setting. Hatched "
        "cells were not measured, or their batch size is out for the reason that is written there.",
        "The default is what its owner would do: the default batch size at the highest setting that was measured.",
    ]
    if report.view.gpu.simulated:
        paragraphs.append(
            "The GPU is simulated: time and energy come from wattune's model of the part and not from hardware. They "
            "show how choices compare; they are no promise for a GPU that one can touch."
        )
    return tuple(paragraphs)
