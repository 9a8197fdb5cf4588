"""The batch size × setting map: expected cost of a run to the target in each cell, relative to the best.

In a terminal it is a table; everything that a colour shows is in the words too.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from math import log

from rich.cells import cell_len, set_cell_size
from rich.text import Text

from wattune.core.errors import Infeasible
from wattune.core.frontier import Frontier, Trial
from wattune.core.job import JobChoice
from wattune.core.measurement import Measurement
from wattune.core.objective import Objective
from wattune.core.setting import Setting
from wattune.render.palette import ink_on, scale_colour
from wattune.render.quantity import counted, duration, percent, quantity

DEFAULT, CHOSEN, BEST = "default", "chosen", "best"
UNMEASURED = "not measured"
TOO_SLOW = "breaks the limit"

MARKS = {CHOSEN: "►", DEFAULT: "○"}
"""Signs in a terminal."""
_WORST = 3.0
"""Cells that cost this many times the best, or more, have the darkest colour; most that matter cost less."""
_LEVELS = 8
_CELL = 10
_RAISED = str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹")
StyledText = tuple[str, str]
"""Characters and their rich style."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MapCell:
    """One batch size at one setting."""

    choice: JobChoice
    cost: Measurement | None = None
    """Expected to the target; None where that is unknown."""
    ratio: float | None = None
    """Its cost over that of the best cell; None where it is unknown or not allowed."""
    runs: int = 0
    """Number of runs with this setting at this batch size."""
    on_frontier: bool = False
    names: tuple[str, ...] = ()
    """Those of default, chosen and best that apply."""
    remark: str | None = None
    """The reason why it has no ratio."""

    @property
    def label(self) -> str:
        if self.ratio is None:
            return "?" if self.cost is None else "limit"
        if BEST in self.names:
            return BEST
        above = 100 * (self.ratio - 1)
        if above >= 999.5:
            return f"×{self.ratio:.0f}"
        return f"+{above:.1f} %" if above < 9.95 else f"+{above:.0f} %"

    @property
    def tip(self) -> str:
        """All details, one per line."""
        lines = [f"batch size {self.choice.batch_size}, {self.choice.setting}", *self.names]
        if self.cost is not None:
            lines.append(f"expected {duration(self.cost.time_s)}, {quantity(self.cost.energy_j, 'J')}")
        if self.ratio is not None:
            lines.append(f"cost {percent(100 * (self.ratio - 1))} against the best")
        if self.on_frontier:
            lines.append("on the time-energy frontier")
        runs = f"{counted(self.runs, 'run')} here" if self.runs else "no run here yet"
        return "\n".join([*lines, *filter(None, (self.remark,)), runs])


@dataclass(frozen=True, slots=True)
class MapRow:
    """All settings at one batch size; `barred` is the reason where the size is excluded."""

    batch_size: int
    cells: tuple[MapCell, ...]
    barred: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CostMap:
    """The map: rows by batch size and columns by setting, both ascending."""

    gpu: str
    simulated: bool
    settings: tuple[Setting, ...]
    rows: tuple[MapRow, ...]

    @property
    def cells(self) -> tuple[MapCell, ...]:
        return tuple(cell for row in self.rows for cell in row.cells)

    def named(self, name: str) -> MapCell | None:
        """Return the cell that is default, chosen or best."""
        return next((cell for cell in self.cells if name in cell.names), None)


def cost_map(
    expected: Mapping[JobChoice, Measurement],
    objective: Objective,
    *,
    gpu: str,
    simulated: bool,
    batch_sizes: Iterable[int],
    tried: Mapping[JobChoice, int] | None = None,
    barred: Mapping[int, str] | None = None,
    default: JobChoice | None = None,
    chosen: JobChoice | None = None,
    reference: Measurement | None = None,
) -> CostMap:
    """Make the map of these expected costs; `barred` sizes are excluded, `reference` is the default's run."""
    tried, barred = tried or {}, barred or {}
    open_to = {choice: cost for choice, cost in expected.items() if choice.batch_size not in barred}
    values = {choice: objective.value(cost) for choice, cost in open_to.items() if _allowed(cost, objective, reference)}
    marked = {DEFAULT: default, CHOSEN: chosen, BEST: min(values, key=lambda choice: values[choice], default=None)}
    kept = {trial.choice for trial in Frontier.of(Trial(choice, open_to[choice]) for choice in values)}
    best = min(values.values(), default=None)
    known = (*expected, *tried, *filter(None, (default, chosen)))
    settings = tuple(sorted({choice.setting for choice in known}))
    cells = {
        size: tuple(
            MapCell(
                choice=choice,
                cost=expected.get(choice),
                ratio=_ratio(values.get(choice), best),
                runs=tried.get(choice, 0),
                on_frontier=choice in kept,
                names=tuple(name for name, owner in marked.items() if owner == choice),
                remark=barred.get(size) or _remark(choice, expected, values),
            )
            for choice in (JobChoice(size, setting) for setting in settings)
        )
        for size in sorted(set(batch_sizes))
    }
    rows = tuple(MapRow(size, own, barred.get(size)) for size, own in cells.items())
    return CostMap(gpu=gpu, simulated=simulated, settings=settings, rows=rows)


def _allowed(cost: Measurement, objective: Objective, reference: Measurement | None) -> bool:
    try:
        objective.choose((Trial(None, cost),), reference=reference)
    except Infeasible:
        return False
    return True


def _ratio(value: float | None, best: float | None) -> float | None:
    if value is None or best is None:
        return None
    return value / best if best > 0 else 1.0


def _remark(
    choice: JobChoice, expected: Mapping[JobChoice, Measurement], values: Mapping[JobChoice, float]
) -> str | None:
    if choice not in expected:
        return UNMEASURED
    return None if choice in values else TOO_SLOW


def short(setting: Setting) -> str:
    """Format a setting as the head of a column: 225 W, 1410 MHz, or driver."""
    parts = []
    if setting.sm_mhz is not None:
        parts.append(f"{setting.sm_mhz} MHz")
    if setting.mem_mhz is not None:
        parts.append(f"mem {setting.mem_mhz}")
    if setting.power_limit_w is not None:
        parts.append(f"{setting.power_limit_w:g} W")
    return " ".join(parts) or "driver"


def thinned(view: CostMap, most: int) -> CostMap:
    """Reduce the map to so many columns: those with a name first, then those that were tried, then others evenly."""
    columns = len(view.settings)
    if columns <= most:
        return view
    named = {cell.choice.setting for cell in view.cells if cell.names}
    tried = {cell.choice.setting for cell in view.cells if cell.runs}
    worth = [view.settings.index(setting) for group in (named, tried) for setting in sorted(group)]
    evenly = (round(part * (columns - 1) / max(most - 1, 1)) for part in range(most))
    kept = sorted(list(dict.fromkeys((*worth, *evenly)))[:most])
    rows = tuple(replace(row, cells=tuple(row.cells[place] for place in kept)) for row in view.rows)
    return replace(view, settings=tuple(view.settings[place] for place in kept), rows=rows)


def _colour_share(ratio: float) -> float:
    """Return the position of a ratio on the colour scale: 1 for the best, 0 for `_WORST` times its cost."""
    return 1 - min(log(max(ratio, 1.0)) / log(_WORST), 1.0)


def map_lines(view: CostMap, *, width: int) -> tuple[Text, ...]:
    """Return the map as a table of expected cost above the best, with as many columns as there is room for."""
    if not view.settings:
        return (Text("no setting was measured yet", "dim"),)
    left = max(len("batch size"), *(len(str(row.batch_size)) for row in view.rows)) + 2
    shown = thinned(view, max((width - left) // _CELL, 1))
    heads = "".join(f"{cut(short(setting), _CELL - 1):>{_CELL}}" for setting in shown.settings)
    lines: list[Text] = [Text(f"{'batch size':>{left - 2}}  {heads}", "dim")]
    for row in reversed(shown.rows):
        label = (f"{row.batch_size:>{left - 2}}  ", "bold")
        lines.append(Text.assemble(label, *_row(row, room=len(shown.settings) * _CELL)))
    return (*lines, *_legend(view, width, hidden=len(view.settings) - len(shown.settings)))


def _row(row: MapRow, *, room: int) -> Iterator[StyledText]:
    if row.barred is not None:
        yield f"{cut(f' {row.barred} ', room):╌^{room}}", "dim"
        return
    for cell in row.cells:
        style = "dim"
        if cell.ratio is not None:
            share = round(_colour_share(cell.ratio) * (_LEVELS - 1)) / (_LEVELS - 1)
            style = f"{ink_on(share)} on {scale_colour(share)}"
        yield _words(cell), style


def _words(cell: MapCell) -> str:
    sign = next((mark for name, mark in MARKS.items() if name in cell.names), "")
    label = cell.label if cell.ratio is not None or cell.cost is not None else "·"
    frontier = "◆" if cell.on_frontier else ""
    runs = str(cell.runs).translate(_RAISED) if 0 < cell.runs < 100 else "⁺" if cell.runs else " "
    return f"{sign}{frontier}{label.replace(' %', '%')}{runs}".rjust(_CELL)


def _legend(view: CostMap, width: int, *, hidden: int) -> Iterator[Text]:
    words = ["expected cost above the best", f"{'simulated ' if view.simulated else ''}{view.gpu}"]
    words += [f"{MARKS[CHOSEN]} chosen", f"{MARKS[DEFAULT]} default", "◆ on the frontier", "⁷ runs there"]
    words += ["· not measured", *([f"{counted(hidden, 'setting')} left out"] if hidden else [])]
    line = words[0]
    for word in words[1:]:
        if cell_len(f"{line}   {word}") > width:
            yield Text(line, "dim")
            line = word
        else:
            line = f"{line}   {word}"
    yield Text(line, "dim")


def cut(text: str, room: int) -> str:
    """Shorten the text to the room there is."""
    return text if cell_len(text) <= room else set_cell_size(text, max(room - 1, 0)) + "…"
