"""Draw charts as SVG: no fonts, scripts or network, readable in light and dark.

`draw` returns an element for a page that already has `STYLE`; `standalone` returns a whole file.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise

from wattune.render.chart import Band, Chart, Mark, Point, ReferenceLine, Series, Shape, Way
from wattune.render.frame import (
    FONT_PX,
    KEY_PX,
    LINE_PX,
    TITLE_PX,
    Box,
    Dots,
    Frame,
    PlacedNote,
    clearest,
    frame,
    place_notes,
    text_width,
)
from wattune.render.palette import variables
from wattune.render.text import escaped

_CORNERS = {
    Shape.SQUARE: ((-4.2, -4.2), (4.2, -4.2), (4.2, 4.2), (-4.2, 4.2)),
    Shape.DIAMOND: ((0.0, -5.8), (5.8, 0.0), (0.0, 5.8), (-5.8, 0.0)),
    Shape.TRIANGLE: ((0.0, -5.6), (5.6, 4.4), (-5.6, 4.4)),
}
_ARM_PX = 4.2
_BESIDE_PX = 40.0


def draw_shape(x: float, y: float, series: Series, *, tip: str | None = None) -> str:
    """Draw a point of a series at a pixel, with its tooltip."""
    title = f"<title>{escaped(tip)}</title>" if tip else ""
    fill = f'fill="var(--{series.tone.value})"'
    if series.shape is Shape.CIRCLE:
        return f'<circle class="dot" cx="{x:.1f}" cy="{y:.1f}" r="4.5" {fill}>{title}</circle>'
    if series.shape is Shape.CROSS:
        arms = "".join(f"M{x - _ARM_PX:.1f} {y - a:.1f}L{x + _ARM_PX:.1f} {y + a:.1f}" for a in (_ARM_PX, -_ARM_PX))
        return f'<path class="cross" d="{arms}" stroke="var(--{series.tone.value})">{title}</path>'
    corners = " ".join(f"{x + across:.1f},{y + down:.1f}" for across, down in _CORNERS[series.shape])
    return f'<polygon class="dot" points="{corners}" {fill}>{title}</polygon>'


STYLE = (
    variables(".chart")
    + """
.chart{font:12px system-ui,-apple-system,"Segoe UI",Roboto,"DejaVu Sans",sans-serif;color:var(--ink)}
.chart text{fill:var(--quiet)}
.chart .title{font-size:15px;font-weight:600;fill:var(--ink)}
.chart .note,.chart .halo{paint-order:stroke;stroke:var(--paper);stroke-width:4px}
.chart .note{fill:var(--ink);font-weight:600}
.chart .detail{font-weight:400;fill:var(--quiet)}
.chart .grid{stroke:var(--line);stroke-width:1;shape-rendering:crispEdges}
.chart .axis{stroke:var(--quiet);stroke-width:1;shape-rendering:crispEdges}
.chart .rule{stroke:var(--quiet);stroke-width:1.2;stroke-dasharray:5 4}
.chart .leader{stroke:var(--quiet);stroke-width:1}
.chart .ring{fill:none;stroke:var(--ink);stroke-width:1.8}
.chart .stroke{fill:none;stroke-width:2;stroke-linejoin:round;stroke-linecap:round}
.chart .dot{stroke:var(--paper);stroke-width:1.2}
.chart .dot:hover{stroke:var(--ink)}
.chart .cross{fill:none;stroke-width:2.4;stroke-linecap:round}
""".replace("\n", "")
)


def draw(chart: Chart, *, width: float = 760, height: float = 420) -> str:
    """Return the chart as an SVG element whose colours come from `STYLE`."""
    place = frame(chart, width=width, height=height)
    dots = tuple(_dots(chart, place))
    notes = place_notes(chart.notes, place, dots=dots)
    band_words = [_band_words(band, chart, place, dots, taken=[note.box for note in notes]) for band in chart.bands]
    parts = (
        *_heading(chart, place),
        *(_band(band, place, words) for band, words in zip(chart.bands, band_words, strict=True)),
        *_axes(chart, place),
        *(_rule(rule, place, dots, taken=tuple(note.box for note in notes)) for rule in chart.rules),
        # Text comes before points, so that it never hides one.
        *(_words(note) for note in notes),
        *(_spread(series, place) for series in chart.series if series.spread),
        *(text for series in chart.series for text in _series(series, place)),
        *(f'<circle class="ring" cx="{note.x:.1f}" cy="{note.y:.1f}" r="7"/>' for note in notes),
    )
    label = escaped(": ".join(filter(None, (chart.title, chart.subtitle))))
    box = f'viewBox="0 0 {width:g} {height:g}" role="img" aria-label="{label}"'
    return f'<svg class="chart" xmlns="http://www.w3.org/2000/svg" {box}>\n' + "\n".join(parts) + "\n</svg>"


def standalone(chart: Chart, *, width: float = 760, height: float = 420) -> str:
    """Return the chart as an SVG file."""
    element = draw(chart, width=width, height=height)
    opening, rest = element.split("\n", 1)
    paper = '<rect width="100%" height="100%" fill="var(--paper)"/>'
    sized = opening.replace("<svg ", f'<svg width="{width:g}" height="{height:g}" ', 1)
    return f"{sized}\n<style>{STYLE}</style>\n{paper}\n{rest}\n"


def beside(charts: Sequence[Chart], *, width: float = 520, height: float = 420) -> str:
    """Return charts of this size side by side as an SVG file."""
    left, parts = 0.0, []
    for chart in charts:
        place = f'<svg x="{left:g}" width="{width:g}" height="{height:g}" '
        parts.append(draw(chart, width=width, height=height).replace("<svg ", place, 1))
        left += width + _BESIDE_PX
    size = f'width="{left - _BESIDE_PX:g}" height="{height:g}"'
    paper = '<rect class="chart" width="100%" height="100%" fill="var(--paper)"/>'
    inner = "\n".join(parts)
    return f'<svg xmlns="http://www.w3.org/2000/svg" {size}>\n<style>{STYLE}</style>\n{paper}\n{inner}\n</svg>\n'


def _heading(chart: Chart, place: Frame) -> Iterator[str]:
    yield _text(0, TITLE_PX, chart.title, kind="title")
    if chart.subtitle:
        yield _text(0, TITLE_PX + LINE_PX, chart.subtitle)
    for series, x, y in place.keys:
        yield _key(series, x, y)
        yield _text(x + KEY_PX, y + 4, series.name)


def _key(series: Series, x: float, y: float) -> str:
    if series.mark is Mark.POINTS:
        return draw_shape(x + 8, y, series)
    line = _path(f"M{x:.1f} {y:.1f}h16", series)
    shade = f'<rect x="{x:.1f}" y="{y - 5:.1f}" width="16" height="10" {_fill(series)} fill-opacity="0.16"/>'
    dot = draw_shape(x + 8, y, series) if series.mark is Mark.LINE_AND_POINTS else ""
    return (shade if series.spread else "") + line + dot


def _axes(chart: Chart, place: Frame) -> Iterator[str]:
    plot = place.plot
    for value, label in place.y_ticks:
        y = place.y(value)
        yield _line(plot.left, y, plot.right, y, kind="grid")
        yield _text(plot.left - 8, y + 4, label, anchor="end")
    yield _line(plot.left, plot.bottom, plot.right, plot.bottom, kind="axis")
    for value, label in place.x_ticks:
        x = place.x(value)
        yield _line(x, plot.bottom, x, plot.bottom + 4, kind="axis")
        yield _text(x, plot.bottom + LINE_PX, label, anchor="middle")
    yield _text(0, plot.top - 10, chart.y.label)
    yield _text(plot.right, plot.bottom + 2 * LINE_PX, chart.x.label, anchor="end")


def _band(band: Band, place: Frame, words: Box | None) -> str:
    plot = place.plot
    left, right = _band_ends(band, place)
    size = f'width="{max(right - left, 0):.1f}" height="{plot.bottom - plot.top:.1f}"'
    fill = f'fill="var(--{band.tone.value})" fill-opacity="0.12"'
    area = f'<rect x="{left:.1f}" y="{plot.top:.1f}" {size} {fill}><title>{escaped(band.text)}</title></rect>'
    if words is not None:
        return area + _text(words.left + 5, words.bottom - 8, band.text)
    if right - left < FONT_PX or text_width(band.text) > plot.bottom - plot.top:
        return area
    x, y = (left + right) / 2 + FONT_PX / 3, plot.bottom - 6  # too narrow for a line of text: write upwards
    return f'{area}<g transform="rotate(-90 {x:.1f} {y:.1f})">{_text(x, y, band.text)}</g>'


def _band_ends(band: Band, place: Frame) -> tuple[float, float]:
    return max(place.x(band.start), place.plot.left), min(place.x(band.end), place.plot.right)


def _band_words(band: Band, chart: Chart, place: Frame, dots: Dots, *, taken: list[Box]) -> Box | None:
    """Place the band's name at its foot, else beside it but in no other band; None where neither is free."""
    wide, plot = text_width(band.text) + 8, place.plot
    left, right = _band_ends(band, place)
    others = [_band_ends(other, place) for other in chart.bands if other is not band]
    starts = (left, right) if wide <= right - left else (right,)
    for start in starts:
        box = Box(start, plot.bottom - LINE_PX - 8, start + wide, plot.bottom)
        hides = any(box.holds(x, y) for x, y in dots) or any(box.overlaps(other) for other in taken)
        foreign = start == right and any(start < ends[1] and ends[0] < start + wide for ends in others)
        if box.inside(plot) and not hides and not foreign:
            return box
    return None


def _rule(rule: ReferenceLine, place: Frame, dots: Dots, *, taken: tuple[Box, ...]) -> str:
    plot = place.plot
    if rule.way is Way.ACROSS:
        y = place.y(rule.at)
        box = clearest(_beside_rule(rule, place), dots=dots, within=plot, taken=taken)
        return _line(plot.left, y, plot.right, y, kind="rule") + _text(
            box.left + 3, box.top + 12, rule.text, kind="halo"
        )
    x = place.x(rule.at)
    room = x + text_width(rule.text) + 6 <= plot.right
    words = _text(x + (5 if room else -5), plot.top + 10, rule.text, kind="halo", anchor="start" if room else "end")
    return _line(x, plot.top, x, plot.bottom, kind="rule") + words


def _beside_rule(rule: ReferenceLine, place: Frame) -> list[Box]:
    """Return the places for the text of a horizontal line: above or below it, right, left or in the middle."""
    wide, y, plot = text_width(rule.text) + 6, place.y(rule.at), place.plot
    lefts = (plot.right - wide, plot.left, (plot.left + plot.right - wide) / 2)
    return [Box(left, top, left + wide, top + LINE_PX) for top in (y - LINE_PX, y + 1) for left in lefts]


def _series(series: Series, place: Frame) -> Iterator[str]:
    runs = tuple(_runs(series.points))
    if series.mark is not Mark.POINTS:
        title = f"<title>{escaped(series.name)}</title>"
        yield from (_path(_trail(run, series.mark, place), series, inner=title) for run in runs)
    if series.mark in (Mark.POINTS, Mark.LINE_AND_POINTS):
        spots = [spot for run in runs for spot in run]
        for x, y, tip in spots[series.first :: series.every]:
            yield draw_shape(place.x(x), place.y(y), series, tip=tip)


Run = tuple[tuple[float, float, str | None], ...]


def _runs(points: Iterable[Point]) -> Iterator[Run]:
    """Split points into runs without an unknown between them."""
    run: list[tuple[float, float, str | None]] = []
    for point in points:
        if point.y is not None:
            run.append((point.x, point.y, point.tip))
        elif run:
            yield tuple(run)
            run = []
    if run:
        yield tuple(run)


def _trail(run: Run, mark: Mark, place: Frame) -> str:
    spots = [(place.x(x), place.y(y)) for x, y, _ in run]
    if len(spots) == 1:
        return f"M{spots[0][0]:.1f} {spots[0][1]:.1f}h0.01"
    if mark is Mark.STEPS:
        bends = (f"H{after[0]:.1f}V{after[1]:.1f}" for _, after in pairwise(spots))
    else:
        bends = (f"L{after[0]:.1f} {after[1]:.1f}" for _, after in pairwise(spots))
    return f"M{spots[0][0]:.1f} {spots[0][1]:.1f}" + "".join(bends)


def _spread(series: Series, place: Frame) -> str:
    there = "L".join(f"{place.x(own.x):.1f} {place.y(own.high):.1f}" for own in series.spread)
    back = "".join(f"L{place.x(own.x):.1f} {place.y(own.low):.1f}" for own in reversed(series.spread))
    return f'<path d="M{there}{back}Z" {_fill(series)} fill-opacity="0.16"/>'


def _words(placed: PlacedNote) -> str:
    box, note = placed.box, placed.note
    near_x = min(max(placed.x, box.left), box.right)
    near_y = min(max(placed.y, box.top), box.bottom)
    anchor, x = ("start", box.left + 3) if box.left >= placed.x else ("end", box.right - 3)
    if box.left < placed.x < box.right:
        anchor, x = "middle", (box.left + box.right) / 2
    words = _text(x, box.top + 13, note.text, kind="note", anchor=anchor)
    if note.detail:
        words += _text(x, box.top + 13 + LINE_PX - 2, note.detail, kind="note detail", anchor=anchor)
    return _line(placed.x, placed.y, near_x, near_y, kind="leader") + words


def _dots(chart: Chart, place: Frame) -> Iterator[tuple[float, float]]:
    """Return the pixels that text should not cover: points, and places along the lines between them."""
    for series in chart.series:
        for run in _runs(series.points):
            spots = [(place.x(x), place.y(y)) for x, y, _ in run]
            yield from spots
            if series.mark is not Mark.POINTS:
                for (x1, y1), (x2, y2) in pairwise(spots):
                    yield from ((x1 + (x2 - x1) * part / 8, y1 + (y2 - y1) * part / 8) for part in range(1, 8))


def _path(trail: str, series: Series, *, inner: str = "") -> str:
    dash = ' stroke-dasharray="6 5"' if series.dashed else ""
    return f'<path class="stroke" d="{trail}" stroke="var(--{series.tone.value})"{dash}>{inner}</path>'


def _fill(series: Series) -> str:
    return f'fill="var(--{series.tone.value})"'


def _line(x1: float, y1: float, x2: float, y2: float, *, kind: str) -> str:
    return f'<line class="{kind}" x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"/>'


def _text(x: float, y: float, text: str, *, kind: str | None = None, anchor: str = "start") -> str:
    named = f' class="{kind}"' if kind else ""
    side = f' text-anchor="{anchor}"' if anchor != "start" else ""
    return f'<text{named} x="{x:.1f}" y="{y:.1f}"{side}>{escaped(text)}</text>'
