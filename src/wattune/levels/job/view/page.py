"""The page of a recurring job: savings, cost of each recurrence, known batch sizes, and what comes next."""

from __future__ import annotations

from collections.abc import Iterator

from wattune.core.job import JobRun
from wattune.levels.job.account import JobOverview
from wattune.levels.job.policies import EpochsBand
from wattune.levels.job.view.charts import epochs_chart, job_frontier_chart
from wattune.levels.job.view.cost_map import CostMap, MapRow
from wattune.levels.job.view.cost_map_svg import STYLE, draw_map
from wattune.levels.job.view.history import history_chart, sizes_chart
from wattune.levels.job.view.view_model import JobView, job_map
from wattune.levels.job.view.words import ENDS, counted_in, gpu_label
from wattune.render.page import Drawing, Figure, Figures, LargeChart, Page, Prose, Section, Table, render_page
from wattune.render.quantity import UNKNOWN, counted, duration, number, percent, quantity
from wattune.render.svg import standalone

_MOST_RUNS = 60
"""Number of runs listed; older ones are in the charts only."""


def job_file(overview: JobOverview, *, searcher: str, made: str, suffix: str) -> str:
    """Render the whole page for `.html`, its first chart for `.svg`."""
    if suffix == ".svg":
        return standalone(history_chart(overview.view))
    return render_page(job_page(overview, searcher=searcher, made=made))


def job_page(overview: JobOverview, *, searcher: str, made: str) -> Page:
    """Lay out the page of a job; `searcher` names the policy, `made` is the footer."""
    view = overview.view
    known = job_map(view)
    sections: list[Section] = [Figures(_figures(overview)), *_pictures(view, known), _sizes(view, known)]
    if view.memory.runs:
        sections.append(_runs(view))
    sections.append(Prose("How to read it", _how(view, searcher)))
    return Page(
        title=f"{view.job.name} on {view.gpu.name}",
        lead=_lead(overview),
        simulated=view.gpu.simulated,
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
    if known.settings:
        yield Drawing(draw_map(known), STYLE)
    frontier = job_frontier_chart(known)
    if frontier is not None:
        yield LargeChart(frontier)


def _lead(overview: JobOverview) -> str:
    saved, view = overview.account.saving_percent, overview.view
    if not view.here:
        words = f"No run on {gpu_label(view.gpu)} yet."
    elif saved is None:
        words = f"{counted(len(view.here), 'run')} on {gpu_label(view.gpu)}; what the default costs is not known yet."
    else:
        side = "less" if saved >= 0 else "more"
        what, _ = counted_in(view.job.objective)
        words = (
            f"{counted(overview.account.recurrences, 'recurrence')} on {gpu_label(view.gpu)} "
            f"took {abs(saved):.1f} % {side} {what} "
            f"than as many runs of the default ({view.job.default_batch_size}), learning included."
        )
    if overview.proposal is None:
        return words
    return f"{words} The next run gets batch size {overview.proposal.batch_size}: {overview.proposal.why}"


def _figures(overview: JobOverview) -> tuple[Figure, ...]:
    what, _ = counted_in(overview.view.job.objective)
    account = overview.account
    spent, energy = account.spent, account.energy_saving_percent
    learning = f"{quantity(account.exploring.energy_j, 'J')} in runs made to learn"
    even = {None: "not in sight", 0: "reached"}.get(account.break_even, f"in {account.break_even}")
    return (
        Figure(
            percent(None if account.saving_percent is None else -account.saving_percent),
            f"{what} against the default",
            f"energy {percent(None if energy is None else -energy)}",
        ),
        Figure(quantity(spent.energy_j, "J"), "spent in all", duration(spent.time_s)),
        Figure(quantity(account.profiling.energy_j, "J"), "of that in profiling", learning),
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
        "The default is a run without tuning: the default batch size at the highest measured setting.",
    ]
    if view.gpu.simulated:
        paragraphs.append(
            "The GPU is simulated: time and energy come from wattune's model of the GPU and not from hardware. They "
            "show how choices compare; they do not guarantee the same figures on real hardware."
        )
    return tuple(paragraphs)
