"""The outcome of a whole run under a policy: a row, means per policy, goals, and the page."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from wattune.core.measurement import Measurement
from wattune.core.setting import DRIVER_DEFAULT, Setting
from wattune.core.window import Purpose, Window
from wattune.levels.run.session import RunSession
from wattune.render.chart import Axis, Chart, Mark, Point, ReferenceLine, Series, Shape, Tone, Way
from wattune.render.page import LargeChart, Page, Prose, Table, render_page
from wattune.render.svg import standalone
from wattune_bench.result import Bench, Goal, Row, at_least, at_most
from wattune_bench.run.policies import GPOEO, OURS

_ALMOST = 1e-9


@dataclass(frozen=True, slots=True)
class BestSetting:
    """The best fixed setting within the slowdown limit, and what it and the default take for the same work."""

    setting: Setting
    default: Measurement
    cost: Measurement

    @property
    def saving(self) -> float:
        """Energy saved against the default, as a share."""
        return 1.0 - self.cost.energy_j / self.default.energy_j


@dataclass(frozen=True, slots=True)
class RunMark:
    """Cost and work of a run up to some moment."""

    cost: Measurement
    work: float
    """Passes or steps done."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlayedRun:
    """A whole run under a policy."""

    policy: str
    end: RunMark
    held: Setting
    """The setting that was held last."""
    windows: tuple[Window, ...] = ()
    changes: int = 0
    """Number of changes of clocks or limits."""
    search: RunMark | None = None
    """The time at which the policy first held a setting; None where it never did."""
    path: tuple[RunMark, ...] = ()
    control_s: float = 0.0
    """CPU time of the control loop."""
    step_time_from: str = "none"
    """The source of the step time: steps, period, counters, or none."""

    @property
    def evaluations(self) -> int:
        """Windows at settings that were tried and at reference clocks."""
        return sum(window.purpose in (Purpose.TRIAL, Purpose.REFERENCE) for window in self.windows)


def fixed_run(policy: str, setting: Setting, cost: Measurement, work: float) -> PlayedRun:
    """A run that has one setting from its first moment to its last."""
    start, end = RunMark(Measurement(0.0, 0.0), 0.0), RunMark(cost, work)
    return PlayedRun(policy=policy, end=end, held=setting, search=start, path=(end,))


class RunRecorder:
    """Marks a run at the end of each measurement window."""

    def __init__(self, session: RunSession) -> None:
        self._session = session
        self._path: list[RunMark] = []
        self._search: RunMark | None = None

    def mark(self, now: Callable[[], RunMark]) -> None:
        """Record how far the run is, where a window has ended since the last call."""
        progress = self._session.progress
        if len(progress.windows) > len(self._path):
            self._path += [now()] * (len(progress.windows) - len(self._path))
        if self._search is None and progress.order is not None and progress.order.purpose is Purpose.HOLD:
            self._search = now()

    def outcome(self, policy: str, end: RunMark, control_s: float) -> PlayedRun:
        """Summarise the run after its session has ended."""
        session = self._session
        windows = session.progress.windows
        held = [window.setting for window in windows if window.purpose is Purpose.HOLD]
        timed = [window for window in windows if window.step_time_s is not None]
        return PlayedRun(
            policy=policy,
            end=end,
            held=held[-1] if held else DRIVER_DEFAULT,
            windows=windows,
            changes=session.loop.changes,
            search=self._search,
            path=(*self._path, end),
            control_s=control_s,
            step_time_from=_SOURCES[session.watch.unit] if timed else "none",
        )


_SOURCES = {"step": "steps", "period": "period", "unit of work": "counters"}


def run_row(workload: str, seed: int, played: PlayedRun, best: BestSetting, *, slowdown: float) -> dict[str, Any]:
    """Judge a whole run, search included, against the default and the best fixed setting."""
    default, cost = best.default, played.end.cost
    saving, slower = 1.0 - cost.energy_j / default.energy_j, cost.time_s / default.time_s - 1.0
    search_s = cost.time_s if played.search is None else played.search.cost.time_s
    return {
        "workload": workload,
        "policy": played.policy,
        "seed": seed,
        "saving_percent": 100 * saving,
        "oracle_saving_percent": 100 * best.saving,
        "slowdown_percent": 100 * slower,
        "promise_kept": slower <= slowdown + _ALMOST,
        "evaluations": played.evaluations,
        "windows": len(played.windows),
        "changes": played.changes,
        "run_saving_percent": 100 * saving,
        "run_slowdown_percent": 100 * slower,
        "search_s": search_s,
        "search_cost_percent": 100 * _search_j(played) / default.energy_j,
        "break_even_s": _break_even_s(played, default),
        "held": str(played.held),
        "step_time_from": played.step_time_from,
        "control_percent": 100 * played.control_s / cost.time_s,
    }


def _search_j(played: PlayedRun) -> float:
    """Return the cost of the search beyond the same work at the rate of the rest of the run."""
    search, end = played.search, played.end
    if search is None or end.work <= search.work:
        return 0.0
    rate_j = (end.cost.energy_j - search.cost.energy_j) / (end.work - search.work)
    return search.cost.energy_j - rate_j * search.work


def _break_even_s(played: PlayedRun, default: Measurement) -> float | None:
    """From when on the run had spent less than the default for the same work; None where it never did for good."""
    unit_j = default.energy_j / played.end.work
    behind = [mark.cost.time_s for mark in played.path if mark.cost.energy_j >= unit_j * mark.work * (1 - 1e-9)]
    last_s = max(behind, default=0.0)
    return None if last_s >= played.end.cost.time_s else last_s


_MEANS = ("evaluations", "windows", "changes", "search_s", "search_cost_percent")


def policy_means(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """Average over workloads and seeds, a row for each policy."""
    names = dict.fromkeys(row["policy"] for row in rows)
    return [_means(name, [row for row in rows if row["policy"] == name]) for name in names]


def _means(policy: str, rows: Sequence[Row]) -> dict[str, Any]:
    saving, best = (fmean(row[name] for row in rows) for name in ("saving_percent", "oracle_saving_percent"))
    return {
        "policy": policy,
        "runs": len(rows),
        "saving_percent": saving,
        "of_oracle_percent": 100 * saving / best if best > 0 else None,
        "slowdown_percent": fmean(row["slowdown_percent"] for row in rows),
        "slowdown_most_percent": max(row["slowdown_percent"] for row in rows),
        "promise_kept_percent": 100 * fmean(row["promise_kept"] for row in rows),
        **{name: fmean(row[name] for row in rows) for name in _MEANS},
    }


def run_goals(rows: Sequence[Row], *, note: str) -> list[Goal]:
    """Goals over whole runs of our policy, searches included."""
    means = {row["policy"]: row for row in policy_means(rows)}
    ours, peer = means.get(OURS, {}), means.get(GPOEO, {})
    goals = [
        at_least("energy saved over whole runs, of the oracle's", ours.get("of_oracle_percent"), 95.0, unit=" %"),
        at_least("whole runs within the slowdown limit", ours.get("promise_kept_percent"), 99.0, unit=" %"),
    ]
    for name, what in (("windows", "measurement windows"), ("changes", "clock changes")):
        ratio = ours[name] / peer[name] if ours and peer.get(name) else None
        goals.append(at_most(f"{what} of whole runs, of GPOEO's", ratio, 0.25, note=note))
    return goals


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
    goals = tuple((goal.name, _cell(goal.value), goal.goal, _MET[goal.met]) for goal in bench.goals)
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


_MET = {True: "met", False: "missed", None: "not measured"}
