"""The batch size × setting map as SVG; words show everything that colours do."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from html import escape

from wattune.levels.job.view.cost_map import (
    CHOSEN,
    DEFAULT,
    WORST,
    CostMap,
    MapCell,
    MapRow,
    colour_share,
    short,
    thinned,
)
from wattune.render.frame import LINE_PX, TITLE_PX, text_width
from wattune.render.palette import ink_on, scale_colour
from wattune.render.quantity import counted
from wattune.render.svg import STYLE as CHART_STYLE

STYLE = (
    CHART_STYLE
    + """
.map .cell{stroke:var(--paper);stroke-width:1.5}
.map .cell:hover{stroke:var(--ink)}
.map .in{text-anchor:middle;pointer-events:none;font-size:11px}
.map .runs{text-anchor:end;pointer-events:none;font-size:9px}
.map .name{text-anchor:start;pointer-events:none;font-size:9px;font-weight:700}
.map .head{font-weight:600;fill:var(--ink)}
.map .barred{fill:var(--ink);paint-order:stroke;stroke:var(--panel);stroke-width:5px}
.map .hatch{stroke:var(--quiet);stroke-width:1;stroke-opacity:.5}
.map .blank{fill:var(--panel)}
.map .chosen{fill:none;stroke:var(--ink);stroke-width:2.6}
.map .default{fill:none;stroke:var(--ink);stroke-width:1.8;stroke-dasharray:4 3}
""".replace("\n", "")
)

MOST_COLUMNS = 12
_SIDE_PX = 76.0
_LEAST_PX = 70.0
"""A narrower cell has no room for its text."""


@dataclass(frozen=True, slots=True)
class _Paper:
    """Positions of the cells."""

    left: float
    top: float
    wide: float
    high: float

    def corner(self, row: int, column: int) -> tuple[float, float]:
        return self.left + column * self.wide, self.top + row * self.high


def draw_map(view: CostMap, *, width: float = 880) -> str:
    """Draw the map as an SVG element with the colours of `STYLE`; the largest batch size is on top."""
    shown = thinned(view, MOST_COLUMNS)
    columns = max(len(shown.settings), 1)
    width = max(width, _SIDE_PX + columns * _LEAST_PX + 4)
    keys = tuple(_keys(width))
    paper = _Paper(
        left=_SIDE_PX,
        top=TITLE_PX + 3 * LINE_PX + 30 + max(y for _, y in keys),
        wide=min((width - _SIDE_PX - 4) / columns, 110.0),
        high=30.0,
    )
    parts = [_hatch(), *_heading(shown, hidden=len(view.settings) - len(shown.settings))]
    parts += [f'<g transform="translate(0 {TITLE_PX + LINE_PX + 22:g})">{"".join(text for text, _ in keys)}</g>']
    parts += _heads(shown, paper)
    for number, row in enumerate(reversed(shown.rows)):
        parts += _row(row, number, paper)
    height = paper.top + len(shown.rows) * paper.high + 8
    label = escape(f"Batch size by {view.knob} on {view.gpu}", quote=True)
    box = f'viewBox="0 0 {width:g} {height:g}" role="img" aria-label="{label}"'
    return f'<svg class="chart map" xmlns="http://www.w3.org/2000/svg" {box}>\n' + "\n".join(parts) + "\n</svg>"


def _hatch() -> str:
    line = '<path class="hatch" d="M-1 6L6 -1M3 9L9 3M-1 1L1 -1"/>'
    return f'<defs><pattern id="unknown" width="7" height="7" patternUnits="userSpaceOnUse">{line}</pattern></defs>'


def _heading(view: CostMap, *, hidden: int) -> Iterator[str]:
    yield _text(0, TITLE_PX, f"Batch size × {view.knob}: expected cost above the best", kind="title")
    left_out = f"; {counted(hidden, 'setting')} between those shown left out" if hidden else ""
    yield _text(0, TITLE_PX + LINE_PX, f"{'simulated ' if view.simulated else ''}{view.gpu}; to the target{left_out}")


def _keys(width: float) -> Iterator[tuple[str, float]]:
    """Yield the entries of the legend, each with its vertical position; rows break at the width."""
    x, y = 0.0, 0.0
    scale = "".join(
        f'<rect x="{step * 5:g}" y="-10" width="5.3" height="12" fill="{scale_colour(1 - step / 15)}"/>'
        for step in range(16)
    )
    entries = (
        (scale, 84.0, f"best to +{100 * (WORST - 1):.0f} % and more"),
        (f'<rect class="blank" y="-10" width="20" height="12"/>{_hatched(0, -10, 20, 12)}', 20.0, "unknown or out"),
        ('<rect class="chosen" x="1" y="-10" width="18" height="11"/>', 20.0, "chosen"),
        ('<rect class="default" x="1" y="-10" width="18" height="11"/>', 20.0, "default"),
        ('<text class="head" x="0" y="0">◆</text>', 12.0, "on the frontier"),
        ('<text class="head" x="0" y="0">3×</text>', 16.0, "runs there"),
    )
    for drawing, own, words in entries:
        wide = own + 6 + text_width(words) + 16
        if x and x + wide > width:
            x, y = 0.0, y + LINE_PX
        yield f'<g transform="translate({x:.1f} {y:.1f})">{drawing}{_text(own + 6, 0, words)}</g>', y
        x += wide


def _heads(view: CostMap, paper: _Paper) -> Iterator[str]:
    yield _text(0, paper.top - 8, "batch size")
    for column, setting in enumerate(view.settings):
        x, y = paper.corner(0, column)
        words = short(setting)
        if text_width(words) > paper.wide:
            words = words.removesuffix(" MHz").removesuffix(" W")
        yield _text(x + paper.wide / 2, y - 8, words, anchor="middle")


def _row(row: MapRow, number: int, paper: _Paper) -> Iterator[str]:
    _, y = paper.corner(number, 0)
    yield _text(paper.left - 10, y + paper.high / 2 + 4, str(row.batch_size), kind="head", anchor="end")
    for column, cell in enumerate(row.cells):
        yield _cell(cell, *paper.corner(number, column), paper, barred=row.barred is not None)
    if row.barred is not None:
        yield _text(paper.left + 10, y + paper.high / 2 + 4, row.barred, kind="barred")


def _cell(cell: MapCell, x: float, y: float, paper: _Paper, *, barred: bool) -> str:
    size = (x, y, paper.wide, paper.high)
    title = f"<title>{escape(cell.tip)}</title>"
    if cell.ratio is None or barred:
        drawn = f'<rect class="cell blank" {_box(*size)}/>{_hatched(*size)}<rect {_box(*size)} fill="none"/>'
        ink, label = "var(--ink)", "" if barred else cell.label
    else:
        share = colour_share(cell.ratio)
        drawn = f'<rect class="cell" {_box(*size)} fill="{scale_colour(share)}">{title}</rect>'
        ink, label = ink_on(share), cell.label
    return drawn + _ring(cell, *size, ink=ink) + _words(cell, *size, ink=ink, label=label)


def _words(cell: MapCell, x: float, y: float, wide: float, high: float, *, ink: str, label: str) -> str:
    fill = f'style="fill:{ink}"'
    low = y + high / 2 + (8 if set(cell.names) & {CHOSEN, DEFAULT} else 4)
    parts = []
    if label:
        sign = "◆ " if cell.on_frontier else ""
        parts.append(f'<text class="in" {fill} x="{x + wide / 2:.1f}" y="{low:.1f}">{sign}{escape(label)}</text>')
    words = next((name for name in (CHOSEN, DEFAULT) if name in cell.names), None)
    if words:
        parts.append(f'<text class="name" {fill} x="{x + 5:.1f}" y="{y + 10.5:.1f}">{words}</text>')
    if cell.runs:
        place = f'x="{x + wide - 5:.1f}" y="{y + 10.5:.1f}"'
        parts.append(f'<text class="runs" {fill} {place}>{cell.runs}×</text>')
    return "".join(parts)


def _ring(cell: MapCell, x: float, y: float, wide: float, high: float, *, ink: str) -> str:
    kind = next((name for name in (CHOSEN, DEFAULT) if name in cell.names), None)
    box = _box(x + 2, y + 2, wide - 4, high - 4)
    return f'<rect class="{kind}" style="stroke:{ink}" {box} pointer-events="none"/>' if kind else ""


def _hatched(x: float, y: float, wide: float, high: float) -> str:
    return f'<rect {_box(x, y, wide, high)} fill="url(#unknown)"/>'


def _box(x: float, y: float, wide: float, high: float) -> str:
    return f'x="{x:.1f}" y="{y:.1f}" width="{wide:.1f}" height="{high:.1f}"'


def _text(x: float, y: float, text: str, *, kind: str | None = None, anchor: str = "start") -> str:
    named = f' class="{kind}"' if kind else ""
    side = f' text-anchor="{anchor}"' if anchor != "start" else ""
    return f'<text{named} x="{x:.1f}" y="{y:.1f}"{side}>{escape(text)}</text>'
