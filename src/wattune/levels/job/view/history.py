"""Charts of the cost and batch size of each recurrence, compared with the default."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

from wattune.core.job import JobRun, Outcome
from wattune.core.measurement import Measurement
from wattune.levels.job.view.charts import count_axis, run_tip, size_axis, value_axis
from wattune.levels.job.view.view_model import JobView
from wattune.levels.job.view.words import ENDS, amount, counted_in, gpu_label
from wattune.render.chart import Chart, Mark, Point, ReferenceLine, Series, Shape, Tone
from wattune.render.quantity import counted, duration, percent, quantity, unit_for

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
    objective = view.job.objective_on(view.gpu.max_power_w)
    found = []
    ordered = sorted(view.here, key=lambda run: (run.recurrence, run.order))
    for number, own in groupby(ordered, key=lambda run: run.recurrence):
        runs = tuple(own)
        costs = [run.cost for run in runs if run.cost is not None]
        if costs and all(run.outcome is not Outcome.RUNNING for run in runs):
            whole = Measurement(sum(cost.time_s for cost in costs), sum(cost.energy_j for cost in costs))
            found.append(Recurrence(number, runs, whole, objective.value(whole)))
    return tuple(found)


def history_chart(view: JobView) -> Chart:
    """Draw the cost of each recurrence by its last batch size, and the default's cost as a line."""
    done = recurrences(view)
    what, base = counted_in(view.job.objective)
    default = _default_value(view)
    values = [own.value for own in done] + ([] if default is None else [default])
    unit = unit_for(values, base)
    other = len(view.memory.runs) - len(view.here)
    elsewhere = f"; {counted(other, 'run')} on other GPUs not shown" if other else ""
    series = _by_size(view, done, unit.factor, default)
    return Chart(
        title=f"{what[0].upper()}{what[1:]} of each recurrence: {view.job.name}",
        subtitle=(
            f"{gpu_label(view.gpu)}; {_INCLUDED if done else 'no recurrence is over yet'}{elsewhere}{_alone(series)}"
        ),
        x=count_axis("recurrence", max((own.number + 1 for own in done), default=1)),
        y=value_axis(what, unit.symbol or None, [value * unit.factor for value in values]),
        series=series,
        rules=() if default is None else (ReferenceLine(default * unit.factor, f"default {amount(default, base)}"),),
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


def _default_value(view: JobView) -> float | None:
    if view.default_run is None:
        return None
    return view.job.objective_on(view.gpu.max_power_w).value(view.default_run)


def _by_size(view: JobView, done: tuple[Recurrence, ...], factor: float, default: float | None) -> tuple[Series, ...]:
    """Return a series per batch size, each with its shape and tone; failed ones are crosses."""
    series = []
    for place, size in enumerate(view.batch_sizes):
        own = tuple(each for each in done if each.reached and each.batch_size == size)
        if own:
            shape, tone = _SHAPES[place % len(_SHAPES)], tuple(Tone)[place % len(Tone)]
            points = tuple(_point(view, each, factor, default) for each in own)
            series.append(Series(name=f"size {size}", points=points, mark=Mark.POINTS, tone=tone, shape=shape))
    failed = tuple(_point(view, each, factor, default) for each in done if not each.reached)
    if failed:
        series.append(Series(name=_FAILED, points=failed, mark=Mark.POINTS, tone=Tone.GREY, shape=Shape.CROSS))
    return tuple(series)


def _point(view: JobView, own: Recurrence, factor: float, default: float | None) -> Point:
    base = counted_in(view.job.objective)[1]
    against = "" if not default else f", {percent(100 * (own.value / default - 1))} against the default"
    lines = [f"recurrence {own.number + 1}: {amount(own.value, base)}{against}"]
    lines.append(f"{duration(own.cost.time_s)}, {quantity(own.cost.energy_j, 'J')}")
    lines += [f"{run.batch_size}: {counted(run.epochs, 'epoch')}, {ENDS[run.outcome]}" for run in own.runs]
    return Point(own.number + 1, own.value * factor, "\n".join(lines))
