"""The page of `wattune kernels`: gains first, then frontiers and streams of partitions, clocks, and every setting."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from wattune.core.frontier import Frontier, Trial
from wattune.core.measurement import Measurement, energy_percent, time_percent
from wattune.core.tariff import Tariff
from wattune.levels.overlap.searched_model import SearchedPartition
from wattune.levels.overlap.space import PartitionChoice, choices
from wattune.levels.overlap.view.kernel_report import KernelReport, SearchedKernels
from wattune.levels.overlap.view.stream_timeline import STREAM_STYLE, draw_streams
from wattune.levels.overlap.view.used_settings import (
    choice_words,
    kind_words,
    mean_clocks_mhz,
    used_choices,
    used_options,
)
from wattune.levels.pipeline.view.page import job_figure, long_run_figure
from wattune.physics.catalog import trust_of
from wattune.plans.plan import Plan
from wattune.render.chart import Axis, Chart, Mark, Note, Point, Series, Shape, Tone, default_series
from wattune.render.page import Drawing, Figure, Figures, LargeChart, Page, Prose, Section, SmallCharts, Table
from wattune.render.quantity import changes, percent, quantity, unit_for

MOST_KINDS = 6
"""Lines in the chart of clocks; with more kinds of instructions, their means over all stages."""
MOST_DRAWN = 400
"""Trials of a partition in its chart, apart from those on the frontier and in the plan."""

NEAR = 1.2
"""Trials up to this factor beyond the ends of a frontier are drawn."""

_TONES = (Tone.BLUE, Tone.ORANGE, Tone.GREEN, Tone.PURPLE, Tone.GOLD, Tone.SKY)


def kernels_page(report: KernelReport, *, made: str, tariff: Tariff) -> Page:
    """Make the page; `made` is its last line."""
    cost, default = report.planned.plan.cost, report.planned.default.cost
    return Page(
        title=f"Kernel plan: {report.title}",
        lead=(
            f"The chosen plan takes {cost.time_s:.4g} s and {quantity(cost.energy_j, 'J')} per iteration and GPU of "
            f"each stage: {changes(time_percent(cost, default), energy_percent(cost, default))} "
            f"against {report.planned.baseline}."
        ),
        simulated=report.planned.source.simulated,
        trust=trust_of(report.planned.source.simulated, report.planned.source.gpu),
        sections=tuple(_sections(report, tariff)),
        foot=made,
    )


def _sections(report: KernelReport, tariff: Tariff) -> Iterator[Section]:
    yield Figures((*_figures(report), job_figure(report.planned), long_run_figure(report.planned, tariff)))
    yield LargeChart(iteration_chart(report))
    if report.searched is not None:
        plan = report.planned.plan.choice
        yield SmallCharts(tuple(partition_chart(own, plan) for own in report.searched.partitions), height=300)
        if report.streams:
            yield Drawing(draw_streams(report.streams, simulated=report.planned.source.simulated), STREAM_STYLE)
    yield LargeChart(clocks_chart(report))
    yield settings_table(report)
    if report.searched is not None:
        yield partitions_table(report.searched)
    yield Prose("Where the numbers come from", _origins(report))


def _figures(report: KernelReport) -> Iterator[Figure]:
    default, plan = report.planned.default.cost, report.planned.plan.cost
    yield Figure(quantity(default.energy_j, "J"), f"with {report.planned.baseline}", f"{default.time_s:.4g} s")
    comparison = report.comparison
    if comparison is not None:
        fastest, perseus = comparison.ours.fastest.cost, comparison.perseus.fastest.cost
        yield Figure(
            percent(time_percent(fastest, perseus)),
            "time at maximum throughput, against Perseus",
            f"energy {percent(energy_percent(fastest, perseus))}",
        )
        yield Figure(percent(comparison.equal_time_energy_percent), "energy at equal time, against Perseus")
        yield Figure(percent(comparison.equal_energy_time_percent), "time at equal energy, against Perseus")
    else:
        change = f"time {percent(time_percent(plan, default))}"
        yield Figure(percent(energy_percent(plan, default)), "energy with the chosen plan", change)
    searched = report.searched
    if searched is not None:
        published = searched.kareus_trials
        kareus = () if published is None else (f"Kareus makes {published}",)
        if searched.complete:
            yield Figure(str(searched.trials), "settings computed", "; ".join(("all of them", *kareus)))
        else:
            yield Figure(
                str(searched.trials), "measurements", "; ".join((f"{searched.gpu_hours:.1f} GPU-hours", *kareus))
            )


def iteration_chart(report: KernelReport) -> Chart:
    """Plot energy against time of one iteration: our plans, those of Perseus, and the default."""
    planned = report.planned
    default, plan = planned.default.cost, planned.plan.cost
    seconds, joules = unit_for((default.time_s,), "s"), unit_for((default.energy_j,), "J")

    def at(cost: Measurement) -> Point:
        tip = f"{cost.time_s:.4g} s, {quantity(cost.energy_j, 'J')}"
        return Point(cost.time_s * seconds.factor, cost.energy_j * joules.factor, tip)

    def line(name: str, trials: tuple[Trial[Plan], ...], tone: Tone) -> Series:
        return Series(name=name, points=tuple(at(t.cost) for t in trials), mark=Mark.LINE_AND_POINTS, tone=tone)

    series = [line("wattune", planned.frontier.trials, Tone.BLUE)]
    if report.comparison is not None:
        series.append(line("Megatron + Perseus", report.comparison.perseus.trials, Tone.GREEN))
    series.append(default_series("Megatron", at(default)))
    chosen = at(plan)
    return Chart(
        title="Time-energy frontier of one iteration",
        subtitle=_subtitle(planned.source.simulated),
        x=Axis(title="time per iteration", unit=seconds.symbol),
        y=Axis(title="energy per iteration, one GPU of each stage", unit=joules.symbol),
        series=tuple(series),
        notes=(Note(chosen.x, chosen.y or 0.0, "chosen plan"),),
    )


def partition_chart(own: SearchedPartition, plan: Plan) -> Chart:
    """Plot the trials of a partition near its frontier, the frontier, and the settings of the chosen plan."""
    frontier = own.frontier
    seconds, joules = unit_for((frontier.cheapest.cost.time_s,), "s"), unit_for((frontier.fastest.cost.energy_j,), "J")
    used = used_choices(plan, own.partition.name)
    near = tuple(trial for trial in own.history if _near(trial.cost, frontier))

    def points(trials: Iterable[Trial[PartitionChoice]]) -> tuple[Point, ...]:
        return tuple(
            Point(
                trial.cost.time_s * seconds.factor,
                trial.cost.energy_j * joules.factor,
                f"{choice_words(trial.choice)}, {trial.choice.sm_mhz} MHz",
            )
            for trial in trials
        )

    far = len(own.history) - len(near)
    every = max(-(-len(near) // MOST_DRAWN), 1)
    drawn = points(near[::every])
    chosen = points(trial for trial in own.history if trial.choice in used)
    return Chart(
        title=own.partition.name,
        subtitle=f"{len(own.history)} trials"
        + (f", {far} of them beyond the edges" if far else "")
        + (f", one of {every} drawn" if every > 1 else ""),
        x=Axis(title="time", unit=seconds.symbol),
        y=Axis(title="energy", unit=joules.symbol),
        series=(
            Series(
                name="trials",
                points=drawn,
                mark=Mark.POINTS,
                tone=Tone.GREY,
                shape=Shape.CROSS,
            ),
            Series(name="frontier", points=points(frontier), tone=Tone.BLUE),
            Series(name="in the plan", points=chosen, mark=Mark.POINTS, tone=Tone.ORANGE, shape=Shape.DIAMOND),
        ),
    )


def _near(cost: Measurement, frontier: Frontier[PartitionChoice]) -> bool:
    slowest_s, most_j = frontier.cheapest.cost.time_s, frontier.fastest.cost.energy_j
    return cost.time_s <= NEAR * slowest_s and cost.energy_j <= NEAR * most_j


def clocks_chart(report: KernelReport) -> Chart:
    """Plot the mean clock of each kind of instruction over the plans of the frontier."""
    kinds = sorted({operation.kind for operation in report.planned.graph.operations})
    few = len(kinds) <= MOST_KINDS
    groups = {kind: kind_words(kind) if few else kind.partition(".")[2] for kind in kinds}
    lines: dict[str, list[Point]] = {}
    for trial in report.planned.frontier:
        for group, mhz in mean_clocks_mhz(trial, groups).items():
            lines.setdefault(group, []).append(Point(trial.cost.time_s, mhz, f"{group}: {mhz:.0f} MHz"))
    series = tuple(
        Series(name=name, points=tuple(points), mark=Mark.LINE_AND_POINTS, tone=tone)
        for (name, points), tone in zip(sorted(lines.items()), _TONES, strict=False)
    )
    return Chart(
        title="Clocks of the plans",
        subtitle="mean over the microbatches of an iteration" + ("" if few else " and over all stages"),
        x=Axis(title="time per iteration", unit="s"),
        y=Axis(title="core clock", unit="MHz"),
        series=series,
    )


def settings_table(report: KernelReport) -> Table:
    """List every option of the chosen plan with the settings of its partitions."""
    rows = []
    for kind, options in used_options(report.planned.plan.choice).items():
        for option in options:
            words = ", ".join(f"{name} {own.launch}/{own.comm_sms}" for name, own in option.partitions.items())
            clock = f"{option.choice.setting.sm_mhz} MHz"
            rows.append((kind_words(kind), clock, str(option.runs), words or "no nanobatches"))
    head = ("instruction", "clock", "microbatches", "launch/SMs of each collective")
    return Table("Settings of the chosen plan", head, tuple(rows), words=4)


def partitions_table(searched: SearchedKernels) -> Table:
    """List the partitions with their spaces and what was measured."""
    rows = []
    for own in searched.partitions:
        space = len(choices(own.partition, searched.gpu))
        rows.append((own.partition.name, str(space), str(len(own.history)), str(len(own.frontier))))
    head = ("partition", "settings", "measured", "on the frontier")
    return Table("Partitions", head, tuple(rows))


def _origins(report: KernelReport) -> tuple[str, ...]:
    planned, searched = report.planned, report.searched
    found = []
    if searched is not None:
        found.append(
            f"Partitions were {_origin(searched)}; embedding and head are simulated. All partitions of an "
            "instruction have its clock; their settings are combined exactly."
        )
        if searched.remaining is not None and not searched.complete:
            found.append(
                f"Plans are expected, not measured, to lie within {100 * searched.remaining.epsilon:.2f} % of the "
                f"frontier of all settings, with {100 * searched.remaining.hypervolume_share:.2f} % of its area "
                "missing."
            )
    found.append(
        f"An instruction starts as soon as the schedule lets it, and a GPU that waits draws "
        f"{planned.blocking_power_w:.1f} W. Energies are those of one GPU of each stage."
    )
    if report.comparison is not None:
        found.append(
            "Megatron runs whole microbatches, every collective after its computation; Perseus plans its clocks. "
            "Equal time is that of the fastest plan of Perseus, equal energy that of its cheapest."
        )
    found.append("A partition's streams are drawn at the setting that most instructions of the chosen plan have.")
    return tuple(found)


def _origin(searched: SearchedKernels) -> str:
    kind = "simulated " if searched.simulated else ""
    if not searched.measured:
        return f"computed for a {kind}{searched.gpu.name}, and so was plain execution"
    factors = [
        f"{name} passes time ×{own.factor.time:.3f}, energy ×{own.factor.energy:.3f}"
        for name, own in searched.calibrations.items()
    ]
    return f"measured by ranks on {kind}GPUs ({'; '.join(factors) or 'not calibrated'})"


def _subtitle(simulated: bool) -> str:
    return f"{'simulated; ' if simulated else ''}left is faster, down is cheaper"
