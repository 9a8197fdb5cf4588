"""Time against energy of whole runs to the target: every cell of a map, and those that no other beats in both."""

from __future__ import annotations

from wattune.core.measurement import Measurement
from wattune.levels.job.view.axes import factor_axis
from wattune.levels.job.view.cost_map import BEST, CHOSEN, DEFAULT, CostMap, MapCell, short
from wattune.render.chart import Chart, Mark, Note, Point, Series, Shape, Tone
from wattune.render.frontier_view import saving_percent, slowdown_percent
from wattune.render.quantity import Unit, percent, unit_for
from wattune.render.words import long_unit


def job_frontier_chart(view: CostMap) -> Chart | None:
    """Energy against time of all cells that are allowed, with their frontier; None where nothing is known."""
    cells = [cell for cell in view.cells if cell.ratio is not None and _positive(cell.cost)]
    costs = [cell.cost for cell in cells if cell.cost is not None]
    if not costs:
        return None
    units = long_unit(cost.time_s for cost in costs), unit_for((cost.energy_j for cost in costs), "J")
    kept = sorted((cell for cell in cells if cell.on_frontier), key=lambda cell: cell.cost.time_s if cell.cost else 0.0)
    others = [cell for cell in cells if not cell.on_frontier]
    series = [Series(name="frontier", points=_points(kept, units), mark=Mark.LINE_AND_POINTS, tone=Tone.BLUE)]
    if others:
        points = _points(others, units)
        series.append(
            Series(name="beaten in both", points=points, mark=Mark.POINTS, tone=Tone.GREY, shape=Shape.DIAMOND)
        )
    return Chart(
        title="Time-energy frontier of a run to the target",
        subtitle=f"{'simulated ' if view.simulated else ''}{view.gpu}; expected; left is faster, down is cheaper",
        x=factor_axis("time per run", units[0].symbol, [cost.time_s * units[0].factor for cost in costs]),
        y=factor_axis("energy per run", units[1].symbol, [cost.energy_j * units[1].factor for cost in costs]),
        series=tuple(series),
        notes=_notes(view, units),
    )


def _positive(cost: Measurement | None) -> bool:
    return cost is not None and cost.time_s > 0 and cost.energy_j > 0


def _points(cells: list[MapCell], units: tuple[Unit, Unit]) -> tuple[Point, ...]:
    return tuple(Point(*_place(cell.cost, units), cell.tip) for cell in cells if cell.cost is not None)


def _place(cost: Measurement, units: tuple[Unit, Unit]) -> tuple[float, float]:
    return cost.time_s * units[0].factor, cost.energy_j * units[1].factor


def _notes(view: CostMap, units: tuple[Unit, Unit]) -> tuple[Note, ...]:
    """A remark at the default, the chosen and the best cell; one where they are the same."""
    default = view.named(DEFAULT)
    cells = dict.fromkeys(filter(None, (default, view.named(CHOSEN), view.named(BEST))))
    notes = []
    for cell in cells:
        if cell.cost is None or not _positive(cell.cost):
            continue
        words = f"{', '.join(cell.names)}: {cell.choice.batch_size}, {short(cell.choice.setting)}"
        base = default.cost if default is not None else None
        detail = None if base is None or cell is default else _against(cell.cost, base)
        notes.append(Note(*_place(cell.cost, units), words, detail))
    return tuple(notes)


def _against(cost: Measurement, default: Measurement) -> str:
    saved = saving_percent(cost, default)
    energy = percent(None if saved is None else -saved)
    return f"{energy} energy, {percent(slowdown_percent(cost, default))} time"
