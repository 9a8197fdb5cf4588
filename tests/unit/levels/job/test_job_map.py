from __future__ import annotations

from itertools import pairwise

import pytest
from rich.style import Style

from job_view_samples import LIMITS_W, SIZES, epoch
from view_samples import plain, styles
from wattune.core.job import JobChoice
from wattune.core.measurement import Measurement
from wattune.core.objective import Deadline, LeastCost, PowerBudget
from wattune.core.setting import DRIVER_DEFAULT, Setting
from wattune.levels.job.view.charts import job_frontier_chart
from wattune.levels.job.view.cost_map import BEST, CHOSEN, DEFAULT, CostMap, cost_map, map_lines, short, thinned
from wattune.render.svg import draw

COST = LeastCost(0.5, 250.0)


def choice(size: int, limit_w: float) -> JobChoice:
    return JobChoice(size, Setting(power_limit_w=limit_w))


def expected(sizes=SIZES, limits_w=LIMITS_W) -> dict[JobChoice, Measurement]:
    return {choice(size, limit): epoch(size, limit) for size in sizes for limit in limits_w}


def sample(**changes: object) -> CostMap:
    costs = expected()
    del costs[choice(64, 100.0)]
    fields = {
        "gpu": "V100 <x>",
        "simulated": True,
        "batch_sizes": SIZES,
        "tried": {choice(256, 150.0): 14},
        "barred": {32: "out of memory & more"},
        "default": choice(512, 250.0),
        "chosen": choice(256, 150.0),
    }
    return cost_map(costs, COST, **{**fields, **changes})


def test_cells_are_compared_with_the_best() -> None:
    view = sample()
    best = view.named(BEST)
    assert best is not None
    assert best.ratio == 1.0
    allowed = [cell for cell in view.cells if cell.ratio is not None]
    assert min(allowed, key=lambda cell: COST.value(cell.cost)) == best
    other = next(cell for cell in allowed if cell.choice == choice(64, 200.0))
    assert other.ratio == pytest.approx(COST.value(epoch(64, 200.0)) / COST.value(best.cost))


def test_a_barred_size_is_never_best_and_says_why() -> None:
    view = sample(barred={512: "out of memory"})
    assert all(cell.ratio is None and not cell.on_frontier for cell in view.rows[-1].cells)
    assert view.rows[-1].barred == "out of memory"
    best = view.named(BEST)
    assert best is not None
    assert best.choice.batch_size != 512


def test_what_was_not_measured_says_so() -> None:
    cell = next(cell for cell in sample().cells if cell.choice == choice(64, 100.0))
    assert (cell.label, cell.ratio, cell.remark) == ("?", None, "not measured")
    assert "not measured" in cell.tip
    assert "no run here yet" in cell.tip


def test_limits_of_the_objective_are_kept() -> None:
    costs = expected()
    late = cost_map(costs, Deadline(25.0), gpu="g", simulated=False, batch_sizes=SIZES)
    for cell in late.cells:
        assert (cell.ratio is None) == (costs[cell.choice].time_s > 25.0)
        if cell.ratio is None:
            assert cell.label == "limit"
    hungry = cost_map(costs, PowerBudget(150.0), gpu="g", simulated=False, batch_sizes=SIZES)
    assert any(cell.ratio is None for cell in hungry.cells)


def test_the_frontier_is_that_of_time_and_energy() -> None:
    view = sample()
    kept = sorted((cell.cost for cell in view.cells if cell.on_frontier), key=lambda cost: cost.time_s)
    assert len(kept) > 1
    assert all(a.time_s < b.time_s and a.energy_j > b.energy_j for a, b in pairwise(kept))


def test_labels_are_short() -> None:
    view = cost_map(
        {choice(1, w): Measurement(t, t) for w, t in ((1.0, 1.0), (2.0, 1.02), (3.0, 1.5), (4.0, 30.0))},
        COST,
        gpu="g",
        simulated=False,
        batch_sizes=(1,),
    )
    assert [cell.label for cell in view.cells] == ["best", "+2.0 %", "+50 %", "×30"]


def test_heads_are_short() -> None:
    settings = (
        Setting(1410),
        Setting(None, 5001),
        Setting(None, None, 225.0),
        DRIVER_DEFAULT,
        Setting(900, None, 90.5),
    )
    assert [short(setting) for setting in settings] == ["1410 MHz", "mem 5001", "225 W", "driver", "900 MHz 90.5 W"]


def test_many_settings_are_thinned_but_named_and_tried_ones_stay() -> None:
    clocks = tuple(range(210, 1425, 15))
    costs = {JobChoice(8, Setting(mhz)): Measurement(1000 / mhz, 200 + mhz / 5) for mhz in clocks}
    tried = {JobChoice(8, Setting(225)): 1}
    view = cost_map(costs, COST, gpu="g", simulated=False, batch_sizes=(8,), tried=tried)
    few = thinned(view, 12)
    assert len(few.settings) <= 12
    assert Setting(225) in few.settings
    assert few.named(BEST) == view.named(BEST)
    assert "70 settings left out" in plain(map_lines(view, width=12 + 11 * 10))


def test_an_empty_map_says_so() -> None:
    view = cost_map({}, COST, gpu="g", simulated=False, batch_sizes=(1, 2))
    assert view.settings == ()
    assert job_frontier_chart(view) is None
    assert plain(map_lines(view, width=80)) == "no setting was measured yet"


def test_the_frontier_beside_the_map_names_default_and_chosen() -> None:
    chart = job_frontier_chart(sample())
    assert chart is not None
    assert [note.text for note in chart.notes][:2] == ["default: 512, 250 W", "chosen: 256, 150 W"]
    assert chart.notes[1].detail is not None
    assert "time" in chart.notes[1].detail
    assert "simulated V100 <x>" in (chart.subtitle or "")
    assert "V100 &lt;x&gt;" in draw(chart)


def test_the_map_in_a_terminal() -> None:
    lines = map_lines(sample(), width=60)
    text = plain(lines)
    assert "out of memory & more" in text
    assert "►" in text
    assert "○" in text
    assert "¹⁴" in text
    assert "simulated V100 <x>" in text
    assert max(map(len, text.splitlines())) <= 60
    rows = text.splitlines()[1 : 1 + len(SIZES)]
    assert [row.split()[0] for row in rows] == ["512", "256", "128", "64", "32"]
    assert all(Style.parse(style) for line in lines for style in styles(line) if style)


def test_a_narrow_terminal_gets_fewer_columns() -> None:
    text = plain(map_lines(sample(), width=45))
    assert max(map(len, text.splitlines())) <= 45
    assert "1 setting left out" in text


@pytest.mark.parametrize("name", [DEFAULT, CHOSEN])
def test_marks_follow_their_cells(name: str) -> None:
    cell = sample().named(name)
    assert cell is not None
    assert name in cell.tip.splitlines()
