"""The settings of a tuned run: what each was found to be, and their table on a terminal."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rich.cells import cell_len
from rich.text import Text

from wattune.control.window_state import Settling
from wattune.core.window import Purpose, since_change
from wattune.levels.run.report import RunReport
from wattune.levels.run.summaries import EstimateWithError, PhaseSummary, SettingSummary, phase_summaries
from wattune.render.quantity import UNKNOWN, duration, quantity, with_error

if TYPE_CHECKING:
    pass
from wattune.levels.run.view.words import clipped, percent_words


def verdict(phase: PhaseSummary, point: SettingSummary, *, slowdown_limit: float | None) -> str:
    """Judge a setting in a word or two; empty where there is no limit that it could break."""
    if point is phase.baseline:
        return "baseline"
    if not any(window.held for window in point.windows):
        return "not applied"
    slower = phase.slowdown(point)
    if slower is None:
        return "no step time" if point.step_time is None else "no baseline"
    return "" if slowdown_limit is None else _against(slower, slowdown_limit)


def measured_cells(phase: PhaseSummary, point: SettingSummary) -> tuple[str, ...]:
    """Format step time, power and energy of a setting, then how time and energy differ, each with its error."""
    step_time, unit, is_base = point.step_time, point.unit, point is phase.baseline
    saved = phase.saving(point)
    return (
        UNKNOWN if step_time is None else with_error(step_time.value, step_time.error, "s"),
        UNKNOWN if point.power is None else quantity(point.power.value, "W"),
        UNKNOWN if unit is None else with_error(unit.energy_j, unit.energy_error_j, "J"),
        "" if is_base else percent_words(phase.slowdown(point)),
        "" if is_base else percent_words(saved and saved.negative),
    )


def _against(slower: EstimateWithError, slowdown_limit: float) -> str:
    error = slower.error or 0.0
    if slower.value - error > slowdown_limit:
        return "too slow"
    return "fast enough" if slower.value + error <= slowdown_limit else "unsure"


HEAD = ("setting", "for", "step time", "power", "energy", "Δ time %", "Δ energy %", "verdict")
_WORTH = (0, 5, 6, 7, 2, 3, 4, 1)
"""The columns in order of importance; the last are dropped first."""
_WORDS = (0, 1, 7)
"""Columns that are left-aligned."""
_GAP = 2
_LATEST = (Purpose.HOLD, Purpose.BASELINE, Purpose.TRIAL, Purpose.REFERENCE)


@dataclass(frozen=True, slots=True)
class SettingRow:
    """The cells of a setting, and their rich style."""

    cells: tuple[str, ...]
    style: str


def setting_rows(report: RunReport) -> tuple[SettingRow, ...]:
    """Make a row for each setting of the present phase of the program, in the order in which they were set."""
    phase = present_phase(report)
    rows = [_row(report, phase, point) for point in phase.points]
    order = report.order
    if order is not None and not report.ended and phase.point(order.setting) is None:
        doing = "settling …" if isinstance(report.progress.state, Settling) else "measuring …"
        rows.append(SettingRow((f"▸{order.setting}", order.purpose.value, *[UNKNOWN] * 5, doing), "bold"))
    return tuple(rows)


def present_phase(report: RunReport) -> PhaseSummary:
    """Summarize the settings since the program last began to do something else."""
    found = phase_summaries(since_change(report.windows))
    return found[0] if found else PhaseSummary()


def table_lines(rows: Sequence[SettingRow], *, width: int, most: int) -> tuple[Text, ...]:
    """Lay out a head and at most so many rows; of too many the first (the baseline) and the latest are shown."""
    if not rows or most < 2:
        return ()
    shown = tuple(rows) if len(rows) < most else (rows[0], *rows[len(rows) - most + 2 :])[: most - 1]
    lines = (HEAD, *(row.cells for row in shown))
    widths = [max(map(cell_len, column)) for column in zip(*lines, strict=True)]
    columns = list(_WORTH)
    while len(columns) > 2 and sum(widths[column] + _GAP for column in columns) - _GAP > width:
        columns.pop()
    columns.sort()
    head = Text(_joined(HEAD, columns, widths, width), "dim")
    return (head, *(Text(_joined(row.cells, columns, widths, width), row.style) for row in shown))


def _row(report: RunReport, phase: PhaseSummary, point: SettingSummary) -> SettingRow:
    order = report.order
    is_set = order is not None and (order.setting, bool(order.by_phase)) == (point.setting, bool(point.by_phase))
    now = is_set and not report.ended
    purpose = next(one for one in _LATEST if one in point.purposes)
    name = f"{'▸' if now else ' '}{point.label}"
    cells = (name, purpose.value, *measured_cells(phase, point), judged_words(report, phase, point))
    return SettingRow(cells, "green" if report.is_held(point) else "")


def judged_words(report: RunReport, phase: PhaseSummary, point: SettingSummary) -> str:
    """Judge a setting, or say for how long it was held.

    A setting that is held for a part of the run may be slower than the limit, which holds for the whole.
    """
    words = verdict(phase, point, slowdown_limit=report.slowdown_limit)
    held_s = sum(window.total.time_s for window in point.windows if window.purpose is Purpose.HOLD)
    if not held_s and not report.is_held(point):
        return words
    held, slower, limit = (
        f"held {duration(held_s)}" if held_s else "held",
        report.figures.slowdown,
        report.slowdown_limit,
    )
    is_met = slower is not None and limit is not None and slower.value <= limit
    return held if is_met or words in ("", "fast enough") else f"{held}, {words}"


def _joined(cells: Sequence[str], columns: Sequence[int], widths: Sequence[int], width: int) -> str:
    parts = []
    for column in columns:
        room = " " * (widths[column] - cell_len(cells[column]))
        parts.append(cells[column] + room if column in _WORDS else room + cells[column])
    return clipped((" " * _GAP).join(parts).rstrip(), width)
