"""The page of the bench of running programs: what each policy saved and how much slower it was."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from wattune.benchmarks.result import Bench
from wattune.render.chart import Axis, Chart, Mark, Point, ReferenceLine, Series, Shape, Tone, Way
from wattune.render.page import LargeChart, Page, Prose, Table, render_page
from wattune.render.svg import standalone

_STYLES = {
    "default": (Tone.GREY, Shape.CROSS),
    "gpoeo": (Tone.ORANGE, Shape.SQUARE),
    "odpp": (Tone.GOLD, Shape.TRIANGLE),
    "mf-gpoeo": (Tone.PURPLE, Shape.DIAMOND),
    "zeus": (Tone.SKY, Shape.SQUARE),
    "grid": (Tone.ORANGE, Shape.SQUARE),
    "wattune": (Tone.BLUE, Shape.CIRCLE),
    "oracle": (Tone.GREEN, Shape.TRIANGLE),
}
_MOST_SLOW = 25.0
"""Runs that are slower are drawn at the edge, so that the slowdown limit stays legible."""


def run_picture(bench: Bench, *, suffix: str, made: str) -> str:
    """The whole page for `.html`, its chart for `.svg`."""
    return standalone(run_chart(bench)) if suffix == ".svg" else render_page(_page(bench, made))


def run_chart(bench: Bench) -> Chart:
    """Every run as a point: slowdown across, saving up."""
    slowdown_limit = bench.figures["promise_percent"]
    names = [row["policy"] for row in bench.figures["policies"]]
    return Chart(
        title="Energy saved and time lost, one point per run",
        subtitle=f"{bench.figures.get('gpu', bench.figures.get('table', ''))}, simulated",
        x=Axis(title="slowdown", unit="%"),
        y=Axis(title="energy saved", unit="%"),
        series=tuple(_series(name, bench) for name in names),
        rules=(ReferenceLine(slowdown_limit, f"slowdown limit: {slowdown_limit:g} %", Way.UPRIGHT),),
    )


def _series(name: str, bench: Bench) -> Series:
    tone, shape = _STYLES.get(name, (Tone.GREY, Shape.CIRCLE))
    points = tuple(
        Point(min(row["slowdown_percent"], _MOST_SLOW), row["saving_percent"], f"{row['workload']}: {row['held']}")
        for row in bench.rows
        if row["policy"] == name
    )
    return Series(name=name, points=points, mark=Mark.POINTS, tone=tone, shape=shape)


def _page(bench: Bench, made: str) -> Page:
    rows: list[Mapping[str, Any]] = bench.figures["policies"]
    head = tuple(rows[0])
    cells = tuple(tuple(_cell(row[name]) for name in head) for row in rows)
    goals = tuple((goal.name, _cell(goal.value), goal.goal, _met(goal.met)) for goal in bench.goals)
    return Page(
        title="Programs tuned while they run",
        lead="What each policy saved, how much slower it made a run, and whether that was within the limit.",
        simulated=bench.simulated,
        sections=(
            LargeChart(run_chart(bench)),
            Table("Means over all runs", tuple(name.replace("_", " ") for name in head), cells),
            Table("Goals", ("goal", "found", "wanted", ""), goals),
            Prose("How it was played", bench.notes),
        ),
        foot=made,
    )


def _cell(value: object) -> str:
    if value is None:
        return "–"
    return f"{value:.1f}" if isinstance(value, float) else str(value)


def _met(met: bool | None) -> str:
    return {True: "met", False: "missed", None: "not measured"}[met]
