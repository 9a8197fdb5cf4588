"""The gears of a run as a table for a terminal, in as many columns as there is room for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich.cells import cell_len, set_cell_size

from wattune.core.run_window import Purpose
from wattune.levels.run.view.settings import Chapter, Gear, chapters_of
from wattune.levels.run.view.view_model import RunView, Stage
from wattune.levels.run.view.words import pace_words, percent_words, verdict
from wattune.render.quantity import UNKNOWN, quantity
from wattune.render.report import with_error
from wattune.render.terminal_graph import Line, Stretch

HEAD = ("setting", "for", "pace", "power", "energy", "Δ time %", "saving %", "verdict")
_WORTH = (0, 5, 6, 7, 2, 3, 4, 1)
"""The columns, the one that is given up last first."""
_WORDS = (0, 1, 7)
"""Columns that stand left."""
_GAP = 2
_LATEST = (Purpose.HOLD, Purpose.BASELINE, Purpose.TRIAL, Purpose.REFERENCE)


@dataclass(frozen=True, slots=True)
class GearRow:
    """The words of a gear, and its kind: now, held, base or gear."""

    cells: tuple[str, ...]
    kind: str


def gear_rows(view: RunView) -> tuple[GearRow, ...]:
    """The gears since the program last began to do something else, in the order in which they were set."""
    found = chapters_of(view.since_change)
    chapter = found[0] if found else Chapter((), ())
    rows = [_row(view, chapter, gear) for gear in chapter.gears]
    order = view.order
    if order is not None and view.stage in (Stage.SETTLING, Stage.LOOKING) and chapter.gear(order.setting) is None:
        doing = "settling …" if view.stage is Stage.SETTLING else "looking …"
        rows.append(GearRow((f"▸{order.setting}", order.purpose.value, *[UNKNOWN] * 5, doing), "now"))
    return tuple(rows)


def table_lines(rows: Sequence[GearRow], *, width: int, most: int) -> tuple[Line, ...]:
    """A head and the rows, at most so many; of too many the first (the baseline) and the latest are shown."""
    if not rows or most < 2:
        return ()
    shown = tuple(rows) if len(rows) < most else (rows[0], *rows[len(rows) - most + 2 :])[: most - 1]
    columns = _fitting(shown, width)
    widths = {column: max(cell_len(row[column]) for row in (HEAD, *(one.cells for one in shown))) for column in columns}
    head = (Stretch(_joined(HEAD, columns, widths, width), "axis"),)
    return (head, *((Stretch(_joined(row.cells, columns, widths, width), row.kind),) for row in shown))


def _row(view: RunView, chapter: Chapter, gear: Gear) -> GearRow:
    now = view.order is not None and view.order.setting == gear.setting and view.stage is not Stage.OVER
    held = gear.setting == view.held
    unit, is_base = gear.unit, gear is chapter.baseline
    purpose = next(one for one in _LATEST if one in gear.purposes)
    cells = (
        f"{'▸' if now else ' '}{gear.setting}",
        purpose.value,
        pace_words(gear),
        quantity(gear.power.value, "W"),
        UNKNOWN if unit is None else with_error(unit.energy_j, unit.energy_error_j, "J"),
        "" if is_base else percent_words(chapter.slowdown(gear)),
        "" if is_base else percent_words(chapter.saving(gear)),
        _verdict(view, chapter, gear),
    )
    return GearRow(cells, "held" if held else "base" if is_base else "gear")


def _verdict(view: RunView, chapter: Chapter, gear: Gear) -> str:
    """What a gear turned out to be; one that is held is fast enough unless something else is said."""
    words = verdict(chapter, gear, promise=view.promise)
    if gear.setting != view.held:
        return words
    return "held" if words in ("", "fast enough") else f"held, {words}"


def _fitting(rows: Sequence[GearRow], width: int) -> tuple[int, ...]:
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
