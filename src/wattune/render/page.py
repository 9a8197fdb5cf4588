"""Self-contained HTML pages from sections: no network, fonts or scripts, light and dark, narrow and wide.

All HTML of wattune is built here, and all text goes through `escaped`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from wattune.core.trust import Trust
from wattune.render.chart import Chart
from wattune.render.palette import variables
from wattune.render.svg import STYLE as CHART_STYLE
from wattune.render.svg import draw
from wattune.render.table import Table as Table
from wattune.render.text import escaped


@dataclass(frozen=True, slots=True)
class Figure:
    """A highlighted number, its label and a detail."""

    value: str
    label: str
    detail: str | None = None


@dataclass(frozen=True, slots=True)
class Figures:
    """Numbers side by side."""

    figures: tuple[Figure, ...]


@dataclass(frozen=True, slots=True)
class LargeChart:
    """A chart as wide as the page, drawn again for narrow screens."""

    chart: Chart


@dataclass(frozen=True, slots=True)
class SmallCharts:
    """Charts side by side where there is room, each 330 pixels wide before it is scaled."""

    charts: tuple[Chart, ...]
    height: float = 260


@dataclass(frozen=True, slots=True)
class Drawing:
    """An SVG element with its style rules; on a narrow screen it scrolls."""

    element: str
    style: str


@dataclass(frozen=True, slots=True)
class Prose:
    """A heading and paragraphs."""

    title: str
    paragraphs: tuple[str, ...]


Section = Figures | LargeChart | SmallCharts | Drawing | Table | Prose


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """The content of a page, from top to bottom."""

    title: str
    lead: str
    simulated: bool
    sections: tuple[Section, ...]
    foot: str
    trust: Trust | None = None
    """How far the figures of the simulated GPU can be trusted; None for several GPUs, as of a bench."""


STYLE = (
    variables(":root")
    + CHART_STYLE
    + """
:root{color-scheme:light dark}
*{box-sizing:border-box}
body{margin:0;background:var(--paper);color:var(--ink);
font:16px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,"DejaVu Sans",sans-serif}
main{max-width:1120px;margin:0 auto;padding:clamp(16px,4vw,48px)}
h1{font-size:clamp(1.5rem,4vw,2.1rem);line-height:1.2;margin:0 0 .4rem;letter-spacing:-.01em}
h2{font-size:1.1rem;margin:0 0 .6rem}
header p{margin:0;color:var(--quiet);max-width:46rem}
.notice{font-size:.88rem;margin-top:.6rem}
.badge{display:inline-block;margin:0 0 .8rem;padding:.1rem .65rem;border-radius:1rem;font-size:.8rem;font-weight:600;
color:var(--orange);border:1.5px solid var(--orange)}
section{margin-top:2.2rem}
.figures{display:grid;grid-template-columns:repeat(auto-fit,minmax(150px,1fr));gap:12px}
.figure{background:var(--panel);border-radius:12px;padding:14px 16px}
.figure b{display:block;font-size:1.4rem;line-height:1.25;letter-spacing:-.02em;font-variant-numeric:tabular-nums}
.figure span{display:block;font-size:.88rem}
.figure small{display:block;font-size:.8rem;color:var(--quiet)}
.chart{display:block;width:100%;height:auto;overflow:visible}
.narrow{display:none}
.charts{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(300px,100%),1fr));gap:32px 28px}
.scroll{overflow-x:auto}
.drawing svg{min-width:720px}
table{border-collapse:collapse;width:100%;font-size:.88rem;font-variant-numeric:tabular-nums}
th,td{padding:.32rem .7rem;text-align:right;white-space:nowrap;border-bottom:1px solid var(--line)}
th{color:var(--quiet);font-weight:600;vertical-align:bottom}
.word{text-align:left}
td.word{white-space:normal;min-width:5.5rem}
tr>:first-child{padding-left:0}
tr>:last-child{padding-right:0}
tr.strong td{font-weight:600}
.prose p{max-width:46rem;margin:.4rem 0}
footer{margin-top:2.5rem;padding-top:1rem;border-top:1px solid var(--line);font-size:.85rem;color:var(--quiet)}
@media (max-width:640px){.wide{display:none}.narrow{display:block}.figures{grid-template-columns:1fr 1fr}
.figure b{font-size:1.35rem}}
@media print{.scroll{overflow:visible}section{break-inside:avoid}}
""".replace("\n", "")
)


def render_page(page: Page) -> str:
    """Return the page as one HTML document."""
    badge = '<div class="badge">simulated</div>' if page.simulated else ""
    notice = f'<p class="notice">{_words(_notice(page.trust))}</p>' if page.simulated else ""
    head = f"<header>{badge}<h1>{_words(page.title)}</h1><p>{_words(page.lead)}</p>{notice}</header>"
    body = "\n".join(_section(section) for section in page.sections)
    mark = " (simulated)" if page.simulated and "(simulated)" not in page.title else ""
    title = escaped(f"{page.title}{mark}")
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width,initial-scale=1">\n'
        f"<title>{title}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n<main>\n{head}\n{body}\n"
        f"<footer>{escaped(page.foot)}</footer>\n</main>\n</body>\n</html>\n"
    )


def _notice(trust: Trust | None) -> str:
    """Return what a simulated page says about its figures."""
    words = "Simulated" if trust is None else f"S{trust.words[1:]}"
    return (
        f"{words}. Time and energy come from wattune's model of the GPU and not from hardware; they show how settings "
        "compare, and a real GPU may differ."
    )


def _section(section: Section) -> str:
    match section:
        case Figures(figures):
            return f'<section class="figures">{"".join(map(_figure, figures))}</section>'
        case LargeChart(chart):
            wide, narrow = draw(chart, width=880, height=420), draw(chart, width=400, height=440)
            return f'<section><div class="wide">{wide}</div><div class="narrow">{narrow}</div></section>'
        case SmallCharts(charts, height):
            pictures = "".join(f"<div>{draw(chart, width=330, height=height)}</div>" for chart in charts)
            return f'<section class="charts">{pictures}</section>'
        case Drawing(element, style):
            return f'<section class="scroll drawing"><style>{style}</style>{element}</section>'
        case Table():
            return _table(section)
        case Prose(title, paragraphs):
            text = "".join(f"<p>{_words(paragraph)}</p>" for paragraph in paragraphs)
            return f'<section class="prose"><h2>{_words(title)}</h2>{text}</section>'


def _figure(figure: Figure) -> str:
    detail = f"<small>{_words(figure.detail)}</small>" if figure.detail else ""
    return f'<div class="figure"><b>{_words(figure.value)}</b><span>{_words(figure.label)}</span>{detail}</div>'


def _table(table: Table) -> str:
    head = _row("th", table, table.head, strong=False)
    rows = "".join(_row("td", table, row, strong=index in table.strong) for index, row in enumerate(table.rows))
    inner = f"<table><thead>{head}</thead><tbody>{rows}</tbody></table>"
    return f'<section><h2>{_words(table.title)}</h2><div class="scroll">{inner}</div></section>'


def _row(tag: str, table: Table, cells: Iterable[str], *, strong: bool) -> str:
    scope = ' scope="col"' if tag == "th" else ""
    word, inner = ' class="word"', ""
    for column, cell in enumerate(cells):
        inner += f"<{tag}{scope}{word if table.has_words(column) else ''}>{_words(cell)}</{tag}>"
    return f'<tr class="strong">{inner}</tr>' if strong else f"<tr>{inner}</tr>"


def _words(text: str) -> str:
    """Escape text, with a non-breaking space between a number and its unit."""
    return _UNIT.sub("\u00a0", escaped(text))


_UNIT = re.compile(r"(?<=\d) (?=[%A-Za-zµ]{1,3}\b|%)")
