"""The learned law: epochs to the target against batch size, with the runs that it was learned from."""

from __future__ import annotations

from collections.abc import Iterable

from wattune.core.job import JobRun, Outcome
from wattune.levels.job.view.axes import size_axis, value_axis
from wattune.levels.job.view.view_model import EpochsBand, JobView
from wattune.render.chart import Chart, Mark, Note, Point, Rule, Series, Shape, Spread, Tone
from wattune.render.quantity import number
from wattune.render.words import ENDS, counted, part

OUTCOMES = {
    Outcome.REACHED: (Shape.CIRCLE, Tone.GREEN, "reached the target"),
    Outcome.MISSED: (Shape.CROSS, Tone.ORANGE, "missed it: would need more"),
    Outcome.STOPPED: (Shape.TRIANGLE, Tone.PURPLE, "stopped: would need more"),
    Outcome.RUNNING: (Shape.DIAMOND, Tone.GREY, "still running"),
}
"""How runs are drawn, by how they ended; others say nothing of epochs."""


def law_chart(view: JobView) -> Chart:
    """Epochs to the target against batch size: what is expected, its band, and every run by how it ended."""
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
        rules=(Rule(float(cap), f"at most {cap}"),) if shown and cap <= 1.5 * max(shown) else (),
    )


def _subtitle(view: JobView) -> str:
    parts = {run.gpu.key: part(run.gpu) for run in view.memory.runs} or {view.gpu.key: part(view.gpu)}
    learned = "expected, and its band" if view.law else "what runs have shown, from least to most"
    return f"{counted(len(view.memory.runs), 'run')} on {', '.join(parts.values())}; line: {learned}"


def _expected(view: JobView, bands: tuple[EpochsBand, ...]) -> tuple[Series, ...]:
    if not bands:
        return ()
    most = view.most_epochs
    points = tuple(
        Point(float(band.batch_size), band.epochs if band.epochs <= most else None, _tip(band)) for band in bands
    )
    spread = tuple(Spread(float(own.batch_size), min(own.low, most), min(own.high, most)) for own in bands)
    name = "law" if view.law else "mean"
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


def _tip(band: EpochsBand) -> str:
    return f"{band.batch_size}: {number(band.epochs)} epochs, from {number(band.low)} to {number(band.high)}"


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
    """What a tooltip says of a run."""
    first = f"run {run.order + 1}, recurrence {run.recurrence + 1}: batch size {run.batch_size} on {part(run.gpu)}"
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
