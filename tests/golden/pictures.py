"""The pictures that are compared with files beside this one. `python tests/golden/pictures.py` writes them again."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

from layer_samples import sample_comparison
from view_samples import everything_chart, plain, sweep_history
from wattune.levels.layer.view.charts import strategies_chart
from wattune.render.chart import Chart
from wattune.render.svg import draw
from wattune.render.terminal_graph import Spot, area_graph, scatter
from wattune.sweeps.frontier_view import allowed_band, frontier_chart, view_settings

HERE = Path(__file__).parent


def pictures() -> dict[str, str]:
    """Each picture by the name of its file."""
    view = view_settings(sweep_history(), slowdown=0.05)
    frontier = frontier_chart(view, title="Time-energy frontier", subtitle="simulated")
    frontier = replace(frontier, bands=(allowed_band(view, slowdown=0.05),))
    return {
        "everything-chart.txt": outline(everything_chart()),
        "frontier-chart.txt": outline(frontier),
        "layers-chart.txt": outline(strategies_chart(sample_comparison())),
        "power-graph.txt": power_graph(),
        "frontier-scatter.txt": frontier_scatter(),
    }


def outline(chart: Chart) -> str:
    """The elements of a chart with their kinds and words, and places to the nearest 20 pixels."""
    root = ElementTree.fromstring(draw(chart))
    return "\n".join(_lines(root, 0)) + "\n"


def _lines(element: ElementTree.Element, depth: int) -> Iterator[str]:
    tag = element.tag.rpartition("}")[2]
    places = [f"{name}={_coarse(element.attrib[name])}" for name in ("x", "y", "cx", "cy") if name in element.attrib]
    kept = [element.attrib.get("class", ""), *places, (element.text or "").strip()]
    yield "  " * depth + " ".join([tag, *filter(None, kept)])
    for child in element:
        yield from _lines(child, depth + 1)


def _coarse(text: str) -> int:
    return round(float(text) / 20) * 20


def power_graph() -> str:
    """A minute of power with a gap."""
    values = [220 + 130 * math.sin(step / 9) if not 60 < step < 75 else None for step in range(140)]
    return plain(area_graph(values, width=80, height=8, high=400.0, unit="W")) + "\n"


def frontier_scatter() -> str:
    """A sweep as the terminal shows it."""
    spots = [Spot(trial.cost.time_s, trial.cost.energy_j, "•", "cyan") for trial in sweep_history()]
    return plain(scatter(spots, width=80, height=12, x_unit="s", y_unit="J")) + "\n"


if __name__ == "__main__":
    for name, text in pictures().items():
        (HERE / name).write_text(text, encoding="utf-8")
