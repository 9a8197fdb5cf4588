"""The settings of a run as a table for a terminal, in as many columns as there is room for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich.cells import cell_len, set_cell_size
from rich.text import Text

from wattune.control.window_state import Settling
from wattune.core.window import Purpose, since_change
from wattune.levels.run.report import RunReport
from wattune.levels.run.setting_summary import PhaseSummary, SettingSummary, phase_summaries
from wattune.levels.run.view.words import percent_words, step_time_words, unit_energy_words, verdict
from wattune.render.quantity import UNKNOWN, quantity

HEAD = ("setting", "for", "step time", "power", "energy", "Δ time %", "saving %", "verdict")
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
    columns = _fitting(shown, width)
    widths = {column: max(cell_len(row[column]) for row in (HEAD, *(one.cells for one in shown))) for column in columns}
    head = Text(_joined(HEAD, columns, widths, width), "dim")
    return (head, *(Text(_joined(row.cells, columns, widths, width), row.style) for row in shown))


def _row(report: RunReport, phase: PhaseSummary, point: SettingSummary) -> SettingRow:
    now = report.order is not None and report.order.setting == point.setting and not report.ended
    held, is_base = point.setting == report.held, point is phase.baseline
    purpose = next(one for one in _LATEST if one in point.purposes)
    cells = (
        f"{'▸' if now else ' '}{point.setting}",
        purpose.value,
        step_time_words(point),
        quantity(point.power.value, "W"),
        unit_energy_words(point),
        "" if is_base else percent_words(phase.slowdown(point)),
        "" if is_base else percent_words(phase.saving(point)),
        _verdict(report, phase, point),
    )
    return SettingRow(cells, "green" if held else "")


def _verdict(report: RunReport, phase: PhaseSummary, point: SettingSummary) -> str:
    """Judge a setting; one that is held is fast enough unless the verdict differs."""
    words = verdict(phase, point, slowdown_limit=report.slowdown_limit)
    if point.setting != report.held:
        return words
    return "held" if words in ("", "fast enough") else f"held, {words}"


def _fitting(rows: Sequence[SettingRow], width: int) -> tuple[int, ...]:
    widths = [max(cell_len(row[column]) for row in (HEAD, *(one.cells for one in rows))) for column in range(len(HEAD))]
    kept = list(_WORTH)
    while len(kept) > 2 and sum(widths[column] + _GAP for column in kept) - _GAP > width:
        kept.pop()
    return tuple(sorted(kept))


def _joined(cells: Sequence[str], columns: Sequence[int], widths: dict[int, int], width: int) -> str:
    parts = []
    for column in columns:
        room = " " * (widths[column] - cell_len(cells[column]))
        parts.append(cells[column] + room if column in _WORDS else room + cells[column])
    return clipped((" " * _GAP).join(parts).rstrip(), width)


def clipped(text: str, room: int) -> str:
    """Replace control characters by spaces and cut the text to the room there is."""
    fit = "".join(letter if letter.isprintable() else " " for letter in text)
    return fit if cell_len(fit) <= room else set_cell_size(fit, max(room - 1, 0)) + "…" * (room > 0)


def joined(lines: Sequence[Text]) -> Text:
    """Join lines to one picture that is never wrapped."""
    return Text("\n", no_wrap=True, overflow="crop").join(lines)
