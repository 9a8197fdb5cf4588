"""The gears of a run as a table for a terminal, in as many columns as there is room for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich.cells import cell_len, set_cell_size
from rich.text import Text

from wattune.core.window import Purpose
from wattune.levels.run.view.settings import HeldInterval, SettingSummary, held_intervals_of
from wattune.levels.run.view.view_model import RunView, TuningStage
from wattune.levels.run.view.words import percent_words, step_time_words, verdict
from wattune.render.quantity import UNKNOWN, quantity, with_error

HEAD = ("setting", "for", "pace", "power", "energy", "Δ time %", "saving %", "verdict")
_WORTH = (0, 5, 6, 7, 2, 3, 4, 1)
"""The columns, the one that is given up last first."""
_WORDS = (0, 1, 7)
"""Columns that stand left."""
_GAP = 2
_LATEST = (Purpose.HOLD, Purpose.BASELINE, Purpose.TRIAL, Purpose.REFERENCE)


@dataclass(frozen=True, slots=True)
class SettingRow:
    """The cells of a setting, and their rich style."""

    cells: tuple[str, ...]
    style: str


def setting_rows(view: RunView) -> tuple[SettingRow, ...]:
    """The gears since the program last began to do something else, in the order in which they were set."""
    found = held_intervals_of(view.since_change)
    held_interval = found[0] if found else HeldInterval((), ())
    rows = [_row(view, held_interval, point) for point in held_interval.points]
    order = view.order
    if (
        order is not None
        and view.stage in (TuningStage.SETTLING, TuningStage.LOOKING)
        and held_interval.point(order.setting) is None
    ):
        doing = "settling …" if view.stage is TuningStage.SETTLING else "looking …"
        rows.append(SettingRow((f"▸{order.setting}", order.purpose.value, *[UNKNOWN] * 5, doing), "bold"))
    return tuple(rows)


def table_lines(rows: Sequence[SettingRow], *, width: int, most: int) -> tuple[Text, ...]:
    """A head and the rows, at most so many; of too many the first (the baseline) and the latest are shown."""
    if not rows or most < 2:
        return ()
    shown = tuple(rows) if len(rows) < most else (rows[0], *rows[len(rows) - most + 2 :])[: most - 1]
    columns = _fitting(shown, width)
    widths = {column: max(cell_len(row[column]) for row in (HEAD, *(one.cells for one in shown))) for column in columns}
    head = Text(_joined(HEAD, columns, widths, width), "dim")
    return (head, *(Text(_joined(row.cells, columns, widths, width), row.style) for row in shown))


def _row(view: RunView, held_interval: HeldInterval, point: SettingSummary) -> SettingRow:
    now = view.order is not None and view.order.setting == point.setting and view.stage is not TuningStage.OVER
    held = point.setting == view.held
    unit, is_base = point.unit, point is held_interval.baseline
    purpose = next(one for one in _LATEST if one in point.purposes)
    cells = (
        f"{'▸' if now else ' '}{point.setting}",
        purpose.value,
        step_time_words(point),
        quantity(point.power.value, "W"),
        UNKNOWN if unit is None else with_error(unit.energy_j, unit.energy_error_j, "J"),
        "" if is_base else percent_words(held_interval.slowdown(point)),
        "" if is_base else percent_words(held_interval.saving(point)),
        _verdict(view, held_interval, point),
    )
    return SettingRow(cells, "green" if held else "")


def _verdict(view: RunView, held_interval: HeldInterval, point: SettingSummary) -> str:
    """What a gear turned out to be; one that is held is fast enough unless something else is said."""
    words = verdict(held_interval, point, slowdown_limit=view.slowdown_limit)
    if point.setting != view.held:
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
    """The text without control characters, or as much of it as there is room for."""
    fit = "".join(letter if letter.isprintable() else " " for letter in text)
    return fit if cell_len(fit) <= room else set_cell_size(fit, max(room - 1, 0)) + "…" * (room > 0)
